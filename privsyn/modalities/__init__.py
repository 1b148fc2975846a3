"""How each kind of record is read, written and shown: one file per kind."""
