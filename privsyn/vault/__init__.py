"""Private intermediates that several machines reach: sealed objects, draws in the ledger."""
