"""The book: journal transactions, entries, keys, posting, history, reconciliation, partitions.

Others may import `ledger.models`, `ledger.services`, `ledger.selectors`, `ledger.commands` and `ledger.errors`.
`ledger.services.post` is the one way money moves.
"""
