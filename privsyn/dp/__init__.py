"""The audited privacy core: numpy, scipy and opendp only; no files, clock, environment or torch."""
