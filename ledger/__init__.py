"""The book: journal transactions, entries, keys, posting, history, reconciliation, partitions.

Others may import `ledger.models`, `ledger.services`, `ledger.selectors`, `ledger.commands`, `ledger.keys`,
`ledger.reversals`, `ledger.errors` and, for pages of their own, `ledger.admin`.
`ledger.services.post` is the one way money moves.
"""
