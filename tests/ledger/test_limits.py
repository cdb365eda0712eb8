"""Limits of a tier: what a wallet may pay out at once and in a business day, by the service and by the database."""

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from django.db import models

from accounts.errors import AccountNotFound, TierNotFound
from accounts.models import Account, Tier
from accounts.services import define_tier, set_tier
from ledger import services
from ledger.commands import Outcome, Refused
from ledger.errors import LimitExceeded
from ledger.models import AccountOutflow
from tests.attacks import (
    ACCEPTED,
    NO_RIGHT,
    Attack,
    Deed,
    Refusal,
    Scene,
    carry_out,
    posting_sql,
    statements,
    tries,
)
from tests.ledger.kit import move, post_all, words
from tests.races import PATIENCE, POSTED, outcomes_of
from tests.world import Person, World
from transfers.services import reverse
from wallet_project.kernel import clock
from wallet_project.kernel.errors import IllegalState

Connect = Callable[[str], psycopg.Connection[Any]]
Attempt = Callable[[str, Deed], Refusal]
REFUSED = "limit_exceeded"


@pytest.fixture
def payee(world: World) -> Person:
    return world.person("payee")


@pytest.fixture
def payer(world: World) -> Person:
    """Somebody with 10 000 who may pay out 400 at once and 1 000 a day."""
    payer = world.person("payer", balance=10_000)
    define_tier(name="basic", currency="VND", single_limit=400, daily_limit=1_000)
    set_tier(account_id=payer.account_id, name="basic")
    return payer


def spent(person: Person) -> int:
    return AccountOutflow.objects.get(account_id=person.account_id).spent


def told(outcome: Outcome) -> tuple[str, str]:
    """Which limit refused it, and in what words."""
    assert isinstance(outcome, Refused)
    assert isinstance(outcome.error, LimitExceeded)
    (field,) = outcome.error.fields
    assert (field.field, field.detail) == ("amount", outcome.error.detail)
    return field.code, field.detail


# --- The service ------------------------------------------------------------------------------------------------------


def test_one_payment_may_reach_its_limit_and_no_more(payer: Person, payee: Person) -> None:
    too_much, as_much_as_may_be = post_all(move(payer, payee, 401), move(payer, payee, 400))
    assert told(too_much) == ("single_limit", "At most 400 may be paid out at once.")
    assert words([as_much_as_may_be]) == [POSTED]
    assert spent(payer) == 400


def test_a_days_payments_may_reach_their_limit_and_no_more(payer: Person, payee: Person) -> None:
    for _ in range(2):
        assert words(post_all(move(payer, payee, 400))) == [POSTED]
    (refused,) = post_all(move(payer, payee, 201))
    assert told(refused) == ("daily_limit", "At most 1000 may be paid out in a day; 200 is left today.")
    assert words(post_all(move(payer, payee, 200), move(payer, payee, 1))) == [POSTED, REFUSED]
    assert spent(payer) == 1_000


def test_the_payments_of_one_call_count_together(payer: Person, payee: Person) -> None:
    outcomes = post_all(*(move(payer, payee, 400) for _ in range(3)), move(payer, payee, 200))
    assert words(outcomes) == [POSTED, POSTED, REFUSED, POSTED]


def test_a_refused_payment_leaves_nothing(payer: Person, payee: Person, snapshot: Callable[[], dict[str, Any]]) -> None:
    before = snapshot()
    assert words(post_all(move(payer, payee, 401))) == [REFUSED]
    assert snapshot() == before


def test_the_limit_is_judged_before_the_funds(world: World, payer: Person, payee: Person) -> None:
    poor = world.person("poor", balance=100)
    set_tier(account_id=poor.account_id, name="basic")
    assert words(post_all(move(poor, payee, 401), move(poor, payee, 400))) == [REFUSED, "insufficient_funds"]


def test_without_a_tier_there_is_no_limit(world: World, payee: Person) -> None:
    rich = world.person("rich", balance=1_000_000)
    assert words(post_all(move(rich, payee, 1_000_000))) == [POSTED]
    assert not AccountOutflow.objects.exists()


def test_a_tier_may_lack_either_limit(world: World, payee: Person) -> None:
    steady, bursting = world.person("steady", balance=5_000), world.person("bursting", balance=5_000)
    define_tier(name="steady", currency="VND", single_limit=10, daily_limit=None)
    define_tier(name="bursting", currency="VND", single_limit=None, daily_limit=4_000)
    set_tier(account_id=steady.account_id, name="steady")
    set_tier(account_id=bursting.account_id, name="bursting")
    assert words(post_all(*(move(steady, payee, 10) for _ in range(3)), move(steady, payee, 11))) == [
        *[POSTED] * 3,
        REFUSED,
    ]
    assert words(post_all(move(bursting, payee, 4_000), move(bursting, payee, 1))) == [POSTED, REFUSED]


def test_what_was_paid_today_before_the_tier_counts(payer: Person, payee: Person) -> None:
    set_tier(account_id=payer.account_id, name=None)
    assert words(post_all(move(payer, payee, 900))) == [POSTED]
    set_tier(account_id=payer.account_id, name="basic")
    assert words(post_all(move(payer, payee, 101), move(payer, payee, 100))) == [REFUSED, POSTED]
    assert spent(payer) == 1_000


def test_another_tier_goes_on_with_the_days_count(payer: Person, payee: Person) -> None:
    define_tier(name="gold", currency="VND", single_limit=5_000, daily_limit=2_000)
    define_tier(name="narrow", currency="VND", single_limit=5_000, daily_limit=500)
    assert words(post_all(move(payer, payee, 400), move(payer, payee, 400))) == [POSTED, POSTED]
    set_tier(account_id=payer.account_id, name="gold")
    assert words(post_all(move(payer, payee, 1_201), move(payer, payee, 1_200))) == [REFUSED, POSTED]
    set_tier(account_id=payer.account_id, name="narrow")
    (refused,) = post_all(move(payer, payee, 1))
    assert told(refused) == ("daily_limit", "At most 500 may be paid out in a day; 0 is left today.")


def test_what_comes_in_or_goes_back_does_not_count(world: World, payer: Person, payee: Person) -> None:
    rich = world.person("rich", balance=5_000)
    paid = world.pay(rich, payer, 5_000)
    reverse(caller=rich.caller, key="back", transaction_id=paid.transaction_id, reason="a mistake")
    assert not AccountOutflow.objects.filter(account_id=payer.account_id).exists()
    assert words(post_all(move(payer, payee, 400))) == [POSTED]


def test_the_day_turns_at_midnight_in_the_business_time_zone(connect: Connect, payer: Person, payee: Person) -> None:
    """The owner alone may place entries in the past: one of the last microsecond of yesterday, one of today's first."""
    midnight = clock.start_of(clock.business_date())
    old, new = Person(payer.user, World().wallet(payer.user)), payee
    names = {
        "payer": old.account_id,
        "payee": new.account_id,
        "bank": Account.objects.filter(kind="BANK_CLEARING", currency="VND", last_entry_at=None, parent__isnull=False)[
            0
        ].pk,
        **{name: str(clock.new_id()) for name in ("funded", "late", "early")},
    }
    moments = [midnight - timedelta(days=1), midnight - timedelta(microseconds=1), midnight]
    funded, late, early = (f"'{moment.isoformat()}'" for moment in moments)
    set_tier(account_id=old.account_id, name="basic")
    past = posting_sql("bank -9000, payer 9000", transaction="funded", type="DEPOSIT", at=funded)
    past += posting_sql("payer -300, payee 300", transaction="late", at=late)
    assert carry_out(connect("owner"), statements(past, names)).by == ACCEPTED
    assert _count_of(old) == (clock.business_date() - timedelta(days=1), 300)

    today = posting_sql("payer -100, payee 100", transaction="early", at=early)
    assert carry_out(connect("owner"), statements(today, names)).by == ACCEPTED
    assert _count_of(old) == (clock.business_date(), 100)
    assert words(post_all(*(move(old, new, 300) for _ in range(4)))) == [*[POSTED] * 3, REFUSED]


def _count_of(person: Person) -> tuple[Any, int]:
    count = AccountOutflow.objects.get(account_id=person.account_id)
    return count.business_date, count.spent


# --- Tiers ------------------------------------------------------------------------------------------------------------


def test_a_tier_is_in_the_wallets_currency(world: World, payer: Person) -> None:
    dollars = world.wallet(payer.user, currency="USD")
    with pytest.raises(TierNotFound):
        set_tier(account_id=dollars, name="basic")
    with pytest.raises(AccountNotFound):
        set_tier(account_id=Account.objects.filter(kind="HOLD", currency="VND")[0].pk, name="basic")
    assert Account.objects.get(pk=dollars).tier is None


def test_a_tier_is_defined_once(payer: Person) -> None:
    with pytest.raises(IllegalState):
        define_tier(name="basic", currency="VND", single_limit=1, daily_limit=1)
    assert Tier.objects.get().single_limit == 400
    define_tier(name="basic", currency="USD", single_limit=1, daily_limit=1)


# --- The database -----------------------------------------------------------------------------------------------------

DAILY, SINGLE = "account_outflow_within_limit", "account_outflow_within_single_limit"
BEYOND = [
    Attack(rule=12, story="more than may be paid at once", sql=posting_sql("payer -401, payee 401"), refused_by=SINGLE),
    Attack(
        rule=12,
        story="more than may be paid at once, to two payees",
        sql=posting_sql("payer -401, payee 200, fresh 201"),
        refused_by=SINGLE,
    ),
    Attack(
        rule=12,
        story="more than may be paid in a day, one after the other",
        sql="".join(posting_sql("payer -400, payee 400", transaction=name) for name in ("new", "other", "third")),
        refused_by=DAILY,
    ),
    Attack(
        rule=12,
        story="the count put back by hand",
        sql=posting_sql("payer -400, payee 400") + "UPDATE account_outflow SET spent = 0;",
        refused_by="account_outflow_by_entry",
        app=NO_RIGHT,
    ),
    Attack(
        rule=12,
        story="the limit of the day raised by hand",
        sql=posting_sql("payer -400, payee 400") + "UPDATE account_outflow SET most = NULL;",
        refused_by="account_outflow_by_entry",
        app=NO_RIGHT,
    ),
    Attack(
        rule=12,
        story="the count deleted",
        sql=posting_sql("payer -400, payee 400") + "DELETE FROM account_outflow;",
        refused_by="account_outflow_by_entry",
        app=NO_RIGHT,
    ),
    Attack(
        rule=12,
        story="all counts deleted",
        sql="TRUNCATE account_outflow;",
        refused_by="account_outflow_by_entry",
        app=NO_RIGHT,
    ),
    Attack(
        rule=12,
        story="a tier changed",
        sql="UPDATE tier SET daily_limit = NULL;",
        refused_by="tier_is_kept",
        app=NO_RIGHT,
    ),
    Attack(rule=12, story="a tier deleted", sql="DELETE FROM tier;", refused_by="tier_is_kept", app=NO_RIGHT),
    Attack(
        rule=12,
        story="a tier for a wallet in another currency",
        sql="UPDATE account SET tier_id = (SELECT id FROM tier) WHERE id = %(dollars)s;",
        refused_by="account_tier_fits",
    ),
    Attack(
        rule=12,
        story="a tier for a system account",
        sql="UPDATE account SET tier_id = (SELECT id FROM tier) WHERE id = %(hold)s;",
        refused_by="account_tier_fits",
    ),
    Attack(
        rule=12,
        story="a tier with a limit of nothing",
        sql="INSERT INTO tier (name, currency, single_limit) VALUES ('nothing', 'VND', 0);",
        refused_by="tier_limits_positive",
    ),
    Attack(
        rule=12,
        story="the counting called by hand",
        sql="SELECT account_outflow_counts(NULL);",
        refused_by="P0001",
        app=NO_RIGHT,
        owner=NO_RIGHT,
        logins=("app", "owner"),
    ),
]


@tries(BEYOND)
def test_nobody_pays_more_than_the_tier_allows(attempt: Attempt, scene: Scene, attack: Attack, login: str) -> None:
    # The payer of the scene has paid 1 000 today already, before there was a tier.
    define_tier(name="basic", currency="VND", single_limit=400, daily_limit=2_000)
    set_tier(account_id=scene.payer, name="basic")
    names = {**scene.names, "third": str(clock.new_id())}
    assert attempt(login, statements(attack.sql, names)) == attack.expected(login)


def test_the_limits_themselves_can_be_reached(attempt: Attempt, scene: Scene) -> None:
    define_tier(name="basic", currency="VND", single_limit=500, daily_limit=1_000)
    set_tier(account_id=scene.payer, name="basic")
    twice = "".join(posting_sql("payer -500, payee 500", transaction=name) for name in ("new", "other"))
    assert attempt("app", statements(twice, scene.names)).by == DAILY
    set_tier(account_id=scene.payer, name=None)
    define_tier(name="wide", currency="VND", single_limit=500, daily_limit=2_000)
    set_tier(account_id=scene.payer, name="wide")
    assert attempt("app", statements(twice, scene.names)).by == ACCEPTED


# --- Races ------------------------------------------------------------------------------------------------------------


@pytest.mark.race
def test_control_without_the_lock_the_count_must_refuse(
    world: World, payer: Person, payee: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All read the same allowance before any has posted."""
    racers = 5
    all_have_read = threading.Barrier(racers)

    def read_without_lock(queryset: models.QuerySet[Account]) -> list[Account]:
        rows = list(queryset.order_by("pk"))
        all_have_read.wait(PATIENCE)
        return rows

    monkeypatch.setattr(services, "lock_rows", read_without_lock)
    outcomes = outcomes_of([partial(world.pay, payer, payee, 400)] * racers)
    assert outcomes[REFUSED] == 0
    assert outcomes[DAILY] + outcomes["ledger_entry_in_order"] == racers - outcomes[POSTED] > 0


@pytest.mark.race
def test_twenty_at_once_and_five_may(world: World, payer: Person, payee: Person) -> None:
    outcomes = outcomes_of([partial(world.pay, payer, payee, 200)] * 20)
    assert outcomes == {POSTED: 5, REFUSED: 15}
    assert (payer.balance, spent(payer)) == (9_000, 1_000)
