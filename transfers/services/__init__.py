"""Use cases. Each opens one durable transaction, makes its domain calls, and returns plain values."""

from transfers.services.accounts import Answer, close_account, open_account
from transfers.services.reversals import Wish, reverse, reverse_each
from transfers.services.transfers import fund, post_one, transfer

__all__ = ["Answer", "Wish", "close_account", "fund", "open_account", "post_one", "reverse", "reverse_each", "transfer"]
