"""The two documents of a release: the one that may leave the room, and the one that stays."""
