"""Opening and closing wallets: commands that post nothing, and keep their answer with their key."""

from typing import Any

from accounts.models import Account
from accounts.services import Caller, close_wallet, open_wallet
from ledger.commands import fingerprint_of
from ledger.holdings import held_balance
from transfers.errors import CONSTRAINTS
from transfers.models import BankOrder
from transfers.selectors import account_body
from transfers.services.once import Answer, answer_once
from wallet_project.kernel.db import lock_rows, translated
from wallet_project.kernel.errors import IllegalState


def open_account(*, caller: Caller, key: str, currency: str, name: str | None = None) -> Answer:
    """Open a wallet for the caller, empty.

    Raises:
        TokenInvalid: the caller is disabled or has changed the password.
        IdempotencyKeyReused: the key belongs to another command of the caller's.
    """

    def work() -> dict[str, Any]:
        return account_body(open_wallet(owner_id=caller.user_id, currency=currency, name=name or ""))

    fingerprint = fingerprint_of("open_account", {"currency": currency, "name": name})
    return answer_once(caller=caller, key=key, fingerprint=fingerprint, status=201, work=work)


def close_account(*, caller: Caller, key: str, account_id: int) -> Answer:
    """Close an empty wallet of the caller's, for ever.

    Raises:
        TokenInvalid, IdempotencyKeyReused: as in `open_account`.
        AccountNotFound: the caller has no such wallet.
        IllegalState: it is closed already, frozen, not empty, or has money on hold or a bank order under way.
    """

    def work() -> dict[str, Any]:
        if BankOrder.objects.owned_by(caller.user_id).open().filter(account_id=account_id).exists():
            raise IllegalState("The account has a deposit or a withdrawal under way.")
        held = wallet.annotate(held=held_balance()).values_list("held", flat=True).first()
        if held:
            raise IllegalState(f"The account has {held} on hold.")
        with translated(CONSTRAINTS):
            return account_body(close_wallet(account_id=account_id, owner_id=caller.user_id))

    fingerprint = fingerprint_of(f"close_account:{account_id}", {})
    wallet = Account.objects.owned_by(caller.user_id).filter(pk=account_id)
    return answer_once(
        caller=caller, key=key, fingerprint=fingerprint, status=200, work=work, lock=lambda: lock_rows(wallet.all())
    )
