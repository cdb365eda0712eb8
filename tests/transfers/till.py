"""A till for the tests of holds: a payer with 1 000, a merchant, and what they do with a hold of 100."""

from typing import Any
from uuid import UUID

import psycopg
import pytest

from accounts.models import Account
from ledger.holdings import held_balance
from tests.world import Person, World
from transfers.models import Hold
from transfers.services import Answer, capture, expire_due, reserve, void
from wallet_project.kernel.errors import DomainError


class Till:
    """A hold may be `promised`, which names the merchant, or open, and then the payer names who gets the money."""

    def __init__(self, world: World, superuser: psycopg.Connection[Any]) -> None:
        self.world = world
        self.superuser = superuser
        self.payer = world.person("payer", balance=1_000)
        self.merchant = world.person("merchant")
        self.keys = iter(range(1, 10_000))

    def reserve(self, amount: int = 100, *, promised: bool = True, key: str | None = None, **more: Any) -> UUID:
        """The id of a new hold."""
        return UUID(self.reserving(amount, promised=promised, key=key, **more).body["holdId"])

    def reserving(
        self,
        amount: int = 100,
        *,
        promised: bool = True,
        key: str | None = None,
        by: Person | None = None,
        **more: Any,
    ) -> Answer:
        payer = by or self.payer
        given = {"to_account_id": self.merchant.account_id} if promised else {}
        arguments = {"account_id": payer.account_id, "amount": amount, **given, **more}
        return reserve(caller=payer.caller, key=key or self.key(), **arguments)

    def let_expire(self, *hold_ids: UUID, after_milliseconds: int = 0) -> None:
        end_time_of(self.superuser, *hold_ids, after_milliseconds=after_milliseconds)

    def ended(self, end: str) -> UUID:
        """A hold of 100 that has ended as told."""
        hold_id = self.reserve()
        match end:
            case "CAPTURED":
                self.capture(hold_id)
            case "VOIDED":
                self.void(hold_id)
            case "EXPIRED":
                self.let_expire(hold_id)
                assert expire_due() == 1
        return hold_id

    def capture(self, hold_id: UUID, *, by: Person | None = None, key: str | None = None, **more: Any) -> Answer:
        return capture(caller=(by or self.merchant).caller, key=key or self.key(), hold_id=hold_id, **more)

    def void(self, hold_id: UUID, *, by: Person | None = None, key: str | None = None) -> Answer:
        return void(caller=(by or self.merchant).caller, key=key or self.key(), hold_id=hold_id)

    def key(self) -> str:
        return f"till:{next(self.keys)}"

    @property
    def figures(self) -> tuple[int, int, int]:
        """What the payer has, what of it is on hold, what the merchant has."""
        payer = Account.objects.filter(pk=self.payer.account_id).annotate(held=held_balance())
        [(balance, held)] = payer.values_list("balance", "held")
        return balance, held, self.merchant.balance


def end_time_of(superuser: psycopg.Connection[Any], *hold_ids: UUID, after_milliseconds: int = 0) -> None:
    """Make it so that holds are over, beneath the rules, since nobody likes to wait."""
    with superuser.transaction():
        superuser.execute("SET LOCAL session_replication_role = replica")
        superuser.execute(
            "UPDATE hold SET expires_at = now() + make_interval(secs => %s) WHERE transaction_id = ANY(%s)",
            [after_milliseconds / 1000, list(hold_ids)],
        )


def status_of(hold_id: UUID) -> str:
    return Hold.objects.get(pk=hold_id).status


def refusal(deed: Any, *arguments: Any, **named: Any) -> str:
    """The code of what a deed is refused with."""
    with pytest.raises(DomainError) as refused:
        deed(*arguments, **named)
    return refused.value.code
