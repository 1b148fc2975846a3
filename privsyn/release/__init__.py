"""What a release is before, while and after it is made."""
