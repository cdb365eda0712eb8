"""The use cases that move money, and the API over them and over accounts.

Nothing imports this app. Each use case in `transfers.services` opens one durable transaction.
"""
