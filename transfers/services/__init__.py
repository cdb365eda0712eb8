"""Use cases. Each opens one durable transaction, makes its domain calls, and returns plain values."""

from transfers.services.accounts import close_account, open_account
from transfers.services.bank_notices import take_notice
from transfers.services.bank_orders import ask_again, deposit, withdraw
from transfers.services.bank_work import advance, due_orders
from transfers.services.expiry import expire_due
from transfers.services.holds import capture, reserve, void
from transfers.services.once import Answer
from transfers.services.reversals import Wish, reverse, reverse_each
from transfers.services.transfers import fund, post_one, transfer

__all__ = [
    "Answer",
    "Wish",
    "advance",
    "ask_again",
    "capture",
    "close_account",
    "deposit",
    "due_orders",
    "expire_due",
    "fund",
    "open_account",
    "post_one",
    "reserve",
    "reverse",
    "reverse_each",
    "take_notice",
    "transfer",
    "void",
    "withdraw",
]
