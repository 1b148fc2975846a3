"""Checks of a synthetic file: Great Expectations suites, profiles, masking."""
