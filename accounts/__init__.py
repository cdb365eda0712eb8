"""Who owns what: users, sign-in, the accounts of the book, freezes.

Others may import `accounts.models`, `accounts.services`, `accounts.selectors`, `accounts.errors` and
`accounts.api.authentication`. Balances are not moved here: only an entry of the ledger does that.
"""
