"""Requests against each other: one key at one moment, and servers that fall over meanwhile."""

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import psycopg
import pytest

from accounts.models import Account
from ledger.models import JournalTransaction
from tests.api.phone import Phones, at_once, problem
from tests.api.servers import processes, terminate_backends
from tests.conftest import serving, wait_until
from tests.world import Person, World

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]

ROUNDS = 20 if os.environ.get("WALLET_SOAK") else 2


def kind_of(answer: httpx.Response) -> str:
    """What became of a command, in a word."""
    if answer.status_code == 201:
        return "replayed" if answer.headers.get("idempotent-replayed") == "true" else "done"
    return str(answer.json()["code"])


@pytest.fixture
def slow_journal(superuser: psycopg.Connection[Any], transactional_db: None) -> Any:
    """Opens the gap between the look-up of a key and its insertion, in which races happen."""
    superuser.execute("""
        CREATE FUNCTION slow_down() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM pg_sleep(0.02); RETURN NEW; END $$;
        CREATE TRIGGER slow_down BEFORE INSERT ON journal_transaction FOR EACH ROW EXECUTE FUNCTION slow_down();
        CREATE TRIGGER slow_down BEFORE INSERT ON idempotency_record FOR EACH ROW EXECUTE FUNCTION slow_down();
    """)
    yield
    superuser.execute("DROP FUNCTION slow_down() CASCADE")


def test_two_at_one_moment_pay_once(phones: Phones, world: World, slow_journal: None) -> None:
    payer, payee = world.person("payer", balance=1_000), world.person("payee")
    phone = phones.of(payer)
    for round_ in range(ROUNDS * 5):
        answers = at_once([partial(phone.pay, payer, payee, 1, key=f"K{round_}")] * 2)
        assert sorted(map(kind_of, answers)) == ["done", "replayed"]
        assert answers[0].content == answers[1].content
    assert payer.balance == 1_000 - ROUNDS * 5


def test_fifty_with_one_key_and_one_body(phones: Phones, world: World, slow_journal: None) -> None:
    payer, payee = world.person("payer", balance=1_000), world.person("payee")
    phone = phones.of(payer)
    for round_ in range(ROUNDS):
        answers = at_once([partial(phone.pay, payer, payee, 1, key=f"K{round_}")] * 50)
        assert Counter(map(kind_of, answers)) == {"done": 1, "replayed": 49}
        assert len({answer.content for answer in answers}) == 1
    assert payer.balance == 1_000 - ROUNDS


def test_forty_with_one_key_and_two_bodies(phones: Phones, world: World, slow_journal: None) -> None:
    payer, payee = world.person("payer", balance=1_000), world.person("payee")
    phone = phones.of(payer)
    for round_ in range(ROUNDS):
        key = f"K{round_}"
        answers = at_once([partial(phone.pay, payer, payee, amount, key=key) for amount in (1, 2) * 20])
        assert Counter(map(kind_of, answers)) == {"done": 1, "replayed": 19, "idempotency_key_reused": 20}
        assert JournalTransaction.objects.filter(idempotency_key=key).count() == 1


def test_one_key_for_accounts_that_do_not_meet(phones: Phones, world: World, slow_journal: None) -> None:
    """No lock brings these together, only the key's own row: who comes second begins again."""
    payer = world.person("payer", balance=1_000)
    second = Person(user=payer.user, account_id=world.wallet(payer.user, balance=1_000))
    payees = [world.person("payee"), world.person("other payee")]
    phone = phones.of(payer)
    for round_ in range(ROUNDS * 3):
        key = f"K{round_}"
        pairs = [(payer, payees[0]), (second, payees[1])] * 4
        answers = at_once([partial(phone.pay, source, payee, 1, key=key) for source, payee in pairs])
        assert Counter(map(kind_of, answers)) == {"done": 1, "replayed": 3, "idempotency_key_reused": 4}
        assert JournalTransaction.objects.filter(idempotency_key=key).count() == 1


def test_an_account_is_opened_once(phones: Phones, world: World, slow_journal: None) -> None:
    person = world.person("an")
    phone = phones.of(person)
    answers = at_once([partial(phone.post, "/v1/accounts", {"currency": "USD"}, key="K")] * 10)
    assert Counter(map(kind_of, answers)) == {"done": 1, "replayed": 9}
    assert len({answer.content for answer in answers}) == 1
    assert Account.objects.filter(owner=person.user, currency="USD").count() == 1


# --- Servers that fall over ------------------------------------------------------------------------------------------


def waiting_backends(superuser: psycopg.Connection[Any]) -> list[int]:
    """The service's backends that wait for a lock in the test database."""
    rows = superuser.execute(
        "SELECT pid FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'wallet' AND wait_event_type = 'Lock'"
    )
    return [row[0] for row in rows]


def test_a_backend_that_dies_waiting_leaves_no_key_behind(
    phones: Phones,
    world: World,
    superuser: psycopg.Connection[Any],
    connect: Callable[[str], psycopg.Connection[Any]],
    snapshot: Callable[[], dict[str, Any]],
) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    phone = phones.of(payer)
    before = snapshot()
    other = connect("superuser")
    other.execute("SELECT FROM account WHERE id = %s FOR UPDATE", [payer.account_id])
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(phone.pay, payer, payee, 10, key="K")
        wait_until(lambda: waiting_backends(superuser) != [], seconds=5)
        superuser.execute("SELECT pg_terminate_backend(%s)", waiting_backends(superuser))
        problem(answer.result(), status=503, code="unavailable")
    other.rollback()
    assert snapshot() == before
    assert [kind_of(phone.pay(payer, payee, 10, key="K")) for _ in range(2)] == ["done", "replayed"]


def test_after_all_backends_died_the_service_recovers_by_itself(
    world: World, superuser: psycopg.Connection[Any]
) -> None:
    """One bad answer per dead connection at most, and each says that the same key may be sent again."""
    payer, payee = world.person("payer", balance=100), world.person("payee")
    with serving() as served, httpx.Client(base_url=served.url, timeout=30) as http:
        phone = Phones(http).of(payer)
        at_once([partial(phone.get, "/v1/accounts")] * 16)  # opens connections in many threads
        killed = terminate_backends(superuser, served)
        bad = 0
        for number in range(60):
            answer = phone.pay(payer, payee, 1, key=f"K{number}")
            while answer.status_code != 201:
                problem(answer, status=503, code="unavailable")
                bad += 1
                answer = phone.pay(payer, payee, 1, key=f"K{number}")
    assert 0 < bad <= killed
    assert payer.balance == 40


def test_a_web_server_that_is_killed_waiting_leaves_no_key_behind(
    phones: Phones,
    world: World,
    superuser: psycopg.Connection[Any],
    connect: Callable[[str], psycopg.Connection[Any]],
    snapshot: Callable[[], dict[str, Any]],
) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    before = snapshot()
    other = connect("superuser")
    other.execute("SELECT FROM account WHERE id = %s FOR UPDATE", [payer.account_id])
    with serving() as served, httpx.Client(base_url=served.url) as http, ThreadPoolExecutor(1) as threads:
        answer = threads.submit(Phones(http).of(payer).pay, payer, payee, 10, key="K")
        wait_until(lambda: waiting_backends(superuser) != [], seconds=5)
        for process in reversed(processes(served)):
            process.kill()
        with pytest.raises(httpx.TransportError):
            answer.result()
    other.rollback()
    wait_until(lambda: waiting_backends(superuser) == [], seconds=5)
    assert snapshot() == before
    phone = phones.of(payer)
    assert [kind_of(phone.pay(payer, payee, 10, key="K")) for _ in range(2)] == ["done", "replayed"]


def test_transfers_there_and_back_again(phones: Phones, world: World) -> None:
    an, binh = world.person("an", balance=1_000), world.person("binh", balance=1_000)
    there = [partial(phones.of(an).pay, an, binh, 1)] * 20
    back = [partial(phones.of(binh).pay, binh, an, 1)] * 20
    answers = at_once([call for pair in zip(there, back, strict=True) for call in pair])
    assert Counter(map(kind_of, answers)) == {"done": 40}
    assert (an.balance, binh.balance) == (1_000, 1_000)
