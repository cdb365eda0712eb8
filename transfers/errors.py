"""Refusals of the use cases, and which constraint means which."""

from ledger.errors import CONSTRAINTS as CONSTRAINTS_OF_THE_BOOK
from ledger.errors import AccountClosed
from wallet_project.kernel.db import LostRace
from wallet_project.kernel.errors import DomainError, IllegalState, NotFound


class BankOrderNotFound(NotFound):
    """No such deposit or withdrawal of the caller's."""


class HoldNotFound(NotFound):
    """No such hold of the caller's; or only the payee may command it."""


# What the services check before, under the same locks. Only a payee is not locked, who may close the wallet meanwhile.
CONSTRAINTS: dict[str, type[DomainError] | type[LostRace]] = {
    **CONSTRAINTS_OF_THE_BOOK,
    "hold_fits_payee": AccountClosed,
    "account_closed_has_no_order": IllegalState,
}
