"""What use cases keep beside the book."""

from transfers.models.bank_orders import (
    LEGAL_MOVES,
    BankNotice,
    BankOrder,
    BankOrderChange,
    BankOrderQuerySet,
    BankReturn,
    Cause,
)
from transfers.models.holds import Hold, HoldQuerySet
from transfers.models.notifications import Notification, NotificationQuerySet

__all__ = [
    "LEGAL_MOVES",
    "BankNotice",
    "BankOrder",
    "BankOrderChange",
    "BankOrderQuerySet",
    "BankReturn",
    "Cause",
    "Hold",
    "HoldQuerySet",
    "Notification",
    "NotificationQuerySet",
]
