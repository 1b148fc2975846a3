"""What differs by the kind of a record: how it is read, written and shown, a file a kind."""
