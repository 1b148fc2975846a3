"""Canary audits: throw-away releases of invented records, attacked. Never of anybody's data."""
