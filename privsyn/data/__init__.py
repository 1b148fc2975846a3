"""Records in, buckets and journals in between, artifacts out."""
