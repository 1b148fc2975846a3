"""The two reports of a release: the outward one may be handed out, the internal one stays."""
