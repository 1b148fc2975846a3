"""Great Expectations on the synthetic file, and the page that shows its result."""
