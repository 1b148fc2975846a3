"""The vault: encrypted private intermediates for several machines, with draws in the ledger."""
