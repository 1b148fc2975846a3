"""The budget ledger: accounts, what every release costs, and who is drawing.

A release is RESERVED by its cost, BEGUN durably before the first record is opened, and ends
COMMITTED or LOST; only an untouched reservation becomes VOID and is given back.
"""
