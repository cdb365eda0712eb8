"""The scene of the attacks: two people, one payment, and accounts of each kind around them."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from accounts.models import Account
from ledger.models import LedgerEntry
from ledger.selectors import draw_system_shard
from tests.attacks import Attack, Deed, Refusal, Scene, carry_out, statements
from tests.world import World


@pytest.fixture
def scene(world: World) -> Scene:
    payer = world.person("payer", balance=50_000)
    payee = world.person("payee")
    dollars = world.wallet(payer.user, currency="USD", balance=500)
    paid = world.pay(payer, payee, 1_000)
    clearing = LedgerEntry.objects.get(amount=-50_000).account_id
    outside = Account.objects.filter(kind="BANK_CLEARING", currency="VND", parent__isnull=False, last_entry_at=None)
    return Scene(
        payer=payer.account_id,
        payee=payee.account_id,
        dollars=dollars,
        clearing=clearing,
        hold=draw_system_shard(kind="HOLD", currency="VND"),
        lender=draw_system_shard(kind="RECEIVABLE", currency="VND"),
        outside=outside.values_list("pk", flat=True)[0],
        fresh=world.wallet(payer.user),
        payer_user=payer.user.pk,
        payee_user=payee.user.pk,
        paid=paid.transaction_id,
        paid_at=paid.created_at,
        new=uuid4(),
        other=uuid4(),
    )


@pytest.fixture
def attempt(
    connect: Callable[[str], psycopg.Connection[Any]], snapshot: Callable[[], dict[str, Any]]
) -> Callable[[str, Deed], Refusal]:
    """`attempt(login, deed)`: who refused it. Whatever was refused has changed nothing."""

    def attempt_as(login: str, deed: Deed) -> Refusal:
        before = snapshot()
        refusal = carry_out(connect(login), deed)
        if refusal.is_refused:
            assert snapshot() == before
        return refusal

    return attempt_as


@pytest.fixture
def assert_refused(attempt: Callable[[str, Deed], Refusal], scene: Scene) -> Callable[[Attack, str], None]:
    """`assert_refused(attack, login)`: refused by the very rule that is meant to, and nothing has changed."""

    def check(attack: Attack, login: str) -> None:
        refusal = attempt(login, statements(attack.sql, scene.names))
        assert refusal == attack.expected(login)

    return check
