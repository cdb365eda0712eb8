"""`/v1/holds`: what a phone sends, sees and is refused."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.api.phone import Phone, Phones, faults, may_reverse, problem
from tests.api.test_order_of_checks import Line, follow
from tests.api.test_transfers import closed, frozen
from tests.transfers.till import Till
from tests.world import Person, World
from transfers.models import Hold
from transfers.services import fund
from wallet_project.kernel.money import MAX_AMOUNT

pytestmark = pytest.mark.django_db(transaction=True)

Snapshot = Callable[[], dict[str, Any]]
NAMES = [
    *("holdId", "status", "accountId", "toAccountId", "amount", "capturedAmount", "releasedAmount"),
    *("expiresAt", "createdAt"),
]


@pytest.fixture
def till(world: World, superuser: psycopg.Connection[Any]) -> Till:
    return Till(world, superuser)


@pytest.fixture
def payer(phones: Phones, till: Till) -> Phone:
    return phones.of(till.payer)


@pytest.fixture
def merchant(phones: Phones, till: Till) -> Phone:
    return phones.of(till.merchant)


def body(till: Till, amount: Any = 100, **more: Any) -> dict[str, Any]:
    return {"accountId": till.payer.account_id, "amount": amount, "toAccountId": till.merchant.account_id, **more}


# --- The story -------------------------------------------------------------------------------------------------------


def test_a_hold_from_the_till_to_the_last_capture(till: Till, payer: Phone, merchant: Phone) -> None:
    made = payer.post("/v1/holds", body(till), key="R")
    assert made.status_code == 201
    hold = made.json()
    assert list(hold) == NAMES
    assert [hold[name] for name in NAMES[1:7]] == [
        *("ACTIVE", till.payer.account_id, till.merchant.account_id, 100, 0, 0),
    ]
    lasts = datetime.fromisoformat(hold["expiresAt"]) - datetime.fromisoformat(hold["createdAt"])
    assert lasts == timedelta(days=7)
    account = payer.get(f"/v1/accounts/{till.payer.account_id}").json()
    assert (account["balance"], account["heldBalance"], account["availableBalance"]) == (900, 100, 900)

    path = f"/v1/holds/{hold['holdId']}"
    part = merchant.post(f"{path}/capture", {"amount": 30}, key="C")
    assert (part.status_code, set(part.json())) == (201, {"transactionId", "holdId", "status"})
    assert (part.json()["holdId"], part.json()["status"]) == (hold["holdId"], "ACTIVE")
    last = merchant.post(f"{path}/capture", {"amount": 50, "final": True})
    assert last.json()["status"] == "CAPTURED"

    seen = payer.get(path).json()
    assert seen == merchant.get(path).json()
    assert (seen["status"], seen["capturedAmount"], seen["releasedAmount"]) == ("CAPTURED", 80, 20)
    balance = payer.get(f"/v1/accounts/{till.payer.account_id}/balance").json()
    assert (balance["balance"], balance["heldBalance"], balance["availableBalance"]) == (920, 0, 920)

    for phone, to, sent, key, first in (
        (payer, "/v1/holds", body(till), "R", made),
        (merchant, f"{path}/capture", {"amount": 30}, "C", part),
    ):
        again = phone.post(to, sent, key=key)
        assert (again.status_code, again.content) == (201, first.content)
        assert again.headers["idempotent-replayed"] == "true"
        operation = phone.get("/v1/operations", idempotencyKey=key).json()
        assert operation == {"status": 201, "body": first.json()}


def test_voiding(till: Till, payer: Phone, merchant: Phone) -> None:
    path = f"/v1/holds/{till.reserve()}"
    merchant.post(f"{path}/capture", {"amount": 30})
    answer = merchant.post(f"{path}/void", {}, key="V")
    assert answer.status_code == 200
    assert answer.json() == payer.get(path).json()
    assert (answer.json()["status"], answer.json()["releasedAmount"]) == ("VOIDED", 70)
    again = merchant.post(f"{path}/void", {}, key="V")
    assert (again.status_code, again.content, again.headers["idempotent-replayed"]) == (200, answer.content, "true")
    assert merchant.get("/v1/operations", idempotencyKey="V").json() == {"status": 200, "body": answer.json()}
    refused = problem(merchant.post(f"{path}/void", {}), status=409, code="illegal_state")
    assert "VOIDED" in refused["detail"]
    assert refused["retry"] == "never"


def test_without_a_payee_the_payer_does_all(till: Till, payer: Phone) -> None:
    made = payer.post("/v1/holds", {"accountId": till.payer.account_id, "amount": 100, "toAccountId": None})
    assert made.json()["toAccountId"] is None
    path = f"/v1/holds/{made.json()['holdId']}"
    nobody = problem(payer.post(f"{path}/capture", {}), status=400, code="invalid_request")
    assert faults(nobody) == {"toAccountId": "required"}
    taken = payer.post(f"{path}/capture", {"toAccountId": till.merchant.account_id})
    assert taken.json()["status"] == "CAPTURED"
    assert till.figures == (900, 0, 100)


def test_bodies_may_be_left_out_where_nothing_must_be_said(till: Till, merchant: Phone) -> None:
    first, second = till.reserve(), till.reserve()
    for path, status in ((f"/v1/holds/{first}/capture", 201), (f"/v1/holds/{second}/void", 200)):
        for content in (b"[]", b"null", b"{"):
            problem(merchant.send(path, content), status=400, code="invalid_json")
        assert merchant.send(path, b"").status_code == status
    assert till.figures == (900, 0, 100)


# --- Fields ----------------------------------------------------------------------------------------------------------


NO_INSTANTS: list[Any] = [
    *(5, True, [], {}, "", "tomorrow", "2026-01-31", "2030-02-30T00:00:00Z", "2030-01-01T00:00:00"),
]
NO_FLAGS: list[Any] = ["true", 1, 0, "", []]


def in_days(days: float) -> str:
    return (datetime.now(UTC) + timedelta(days=days)).isoformat()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"amount": 0}, {"amount": "min_value"}),
        ({"amount": -5}, {"amount": "min_value"}),
        ({"amount": MAX_AMOUNT + 1}, {"amount": "max_value"}),
        *(({"amount": amount}, {"amount": "invalid"}) for amount in ("100", "1_00", 1.0, True, [1])),
        ({"amount": None}, {"amount": "null"}),
        ({"accountId": "7"}, {"accountId": "invalid"}),
        ({"toAccountId": 0}, {"toAccountId": "min_value"}),
        ({"toAccountId": "７"}, {"toAccountId": "invalid"}),
        *(({"expiresAt": value}, {"expiresAt": "invalid"}) for value in NO_INSTANTS),
        ({"expiresAt": "2020-01-01T00:00:00Z"}, {"expiresAt": "past"}),
        ({"expiresAt": "9999-12-31T23:59:59Z"}, {"expiresAt": "too_far"}),
        ({"final": True, "reference": "x"}, {"final": "unknown", "reference": "unknown"}),
    ],
)
def test_what_no_hold_can_be(
    till: Till, payer: Phone, snapshot: Snapshot, change: dict[str, Any], fault: dict[str, str]
) -> None:
    before = snapshot()
    refused = problem(payer.post("/v1/holds", body(till, **change)), status=400, code="invalid_request")
    assert faults(refused) == fault
    assert snapshot() == before


def test_any_instant_within_thirty_days(till: Till, payer: Phone) -> None:
    for days in (0.001, 1, 29.999):
        said = in_days(days)
        made = payer.post("/v1/holds", body(till, amount=1, expiresAt=said)).json()
        assert datetime.fromisoformat(made["expiresAt"]) == datetime.fromisoformat(said)
    assert payer.post("/v1/holds", body(till, amount=1, expiresAt=None)).status_code == 201
    too_far = payer.post("/v1/holds", body(till, expiresAt=in_days(30.001)))
    assert faults(problem(too_far, status=400, code="invalid_request")) == {"expiresAt": "too_far"}


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        ({"amount": 0}, {"amount": "min_value"}),
        ({"amount": -5}, {"amount": "min_value"}),
        ({"amount": "30"}, {"amount": "invalid"}),
        *(({"final": flag}, {"final": "invalid"}) for flag in NO_FLAGS),
        ({"toAccountId": "x"}, {"toAccountId": "invalid"}),
        ({"release": True}, {"release": "unknown"}),
    ],
)
def test_what_no_capture_can_be(
    till: Till, merchant: Phone, snapshot: Snapshot, sent: dict[str, Any], fault: dict[str, str]
) -> None:
    hold = till.reserve()
    before = snapshot()
    refused = problem(merchant.post(f"/v1/holds/{hold}/capture", sent), status=400, code="invalid_request")
    assert faults(refused) == fault
    assert snapshot() == before


def test_null_is_the_same_as_absent(till: Till, merchant: Phone) -> None:
    hold = till.reserve()
    path = f"/v1/holds/{hold}/capture"
    first = merchant.post(path, {"amount": None, "toAccountId": None, "final": None}, key="C")
    again = merchant.post(path, {}, key="C")
    assert (first.status_code, again.content, again.headers["idempotent-replayed"]) == (201, first.content, "true")


# --- Whose -----------------------------------------------------------------------------------------------------------


def test_somebody_elses_hold_is_none(till: Till, phones: Phones, world: World, snapshot: Snapshot) -> None:
    stranger = phones.of(world.person("stranger"))
    holds = [till.reserve(), till.reserve(promised=False)]
    before = snapshot()
    for hold in (*holds, uuid4(), UUID(int=0)):
        path = f"/v1/holds/{hold}"
        problem(stranger.get(path), status=404, code="not_found")
        problem(stranger.post(f"{path}/capture", {}), status=404, code="not_found")
        problem(stranger.post(f"{path}/void", {}), status=404, code="not_found")
    for account_id in (till.payer.account_id, till.merchant.account_id, 2**62):
        problem(stranger.get("/v1/holds", accountId=account_id), status=404, code="not_found")
        mine = {"accountId": account_id, "amount": 1}
        problem(stranger.post("/v1/holds", mine), status=404, code="not_found")
    assert stranger.get("/v1/holds").json() == {"items": [], "nextCursor": None}
    assert snapshot() == before


def test_the_payer_of_a_promise_only_sees_it(till: Till, payer: Phone, snapshot: Snapshot) -> None:
    path = f"/v1/holds/{till.reserve()}"
    before = snapshot()
    assert payer.get(path).status_code == 200
    problem(payer.post(f"{path}/capture", {"amount": 1}), status=404, code="not_found")
    problem(payer.post(f"{path}/void", {}), status=404, code="not_found")
    assert snapshot() == before


@pytest.mark.parametrize("id_", ["x", "1", "01a22db0-7c3e-7d7c-9a57", "%00", "1_0"])
def test_what_is_no_id_is_no_address(payer: Phone, id_: str) -> None:
    for path in (f"/v1/holds/{id_}", f"/v1/holds/{id_}/"):
        problem(payer.get(path), status=404, code="not_found")


# --- Lists -----------------------------------------------------------------------------------------------------------


def test_a_list_shows_each_hold_once_while_more_are_made(till: Till, payer: Phone) -> None:
    made = [str(till.reserve(1, promised=bool(number % 2))) for number in range(7)]
    seen: list[str] = []
    cursor: dict[str, Any] = {}
    while True:
        page = payer.get("/v1/holds", accountId=till.payer.account_id, limit=3, **cursor).json()
        seen += [item["holdId"] for item in page["items"]]
        if page["nextCursor"] is None:
            break
        cursor = {"cursor": page["nextCursor"]}
        till.reserve(1)
    assert seen == made[::-1]


def test_a_list_shows_what_was_set_aside_and_what_was_promised(
    till: Till, payer: Phone, merchant: Phone, world: World
) -> None:
    pocket = world.wallet(till.payer.user, balance=50)
    own = [str(till.reserve(1)), str(till.reserve(2, promised=False))]
    from_pocket = str(till.reserve(3, account_id=pocket))
    back = str(till.reserve(4, account_id=pocket, to_account_id=till.payer.account_id))  # between wallets of one owner

    def listed(phone: Phone, **query: Any) -> list[str]:
        items = phone.get("/v1/holds", **query).json()["items"]
        assert all(list(item) == NAMES for item in items)
        return [item["holdId"] for item in items]

    assert listed(payer) == [back, from_pocket, *own[::-1]]
    assert listed(payer, accountId=pocket) == [back, from_pocket]
    assert listed(payer, accountId=till.payer.account_id) == [back, *own[::-1]]
    assert listed(merchant) == [from_pocket, own[0]]


@pytest.mark.parametrize("number", ["0", "-1", "1_0", "１", "x", "", "01", "99999999999999999999", " 1", "1.0"])
def test_what_is_no_account_number(payer: Phone, number: str) -> None:
    refused = problem(payer.get("/v1/holds", accountId=number), status=400, code="invalid_request")
    assert faults(refused) == {"accountId": "invalid"}


def test_cursors_of_other_lists_are_refused(till: Till, payer: Phone, merchant: Phone) -> None:
    for _ in range(2):
        till.reserve(1)
    every = payer.get("/v1/holds", limit=1).json()["nextCursor"]
    of_one = payer.get("/v1/holds", limit=1, accountId=till.payer.account_id).json()["nextCursor"]
    for query in ({"cursor": of_one}, {"cursor": every, "accountId": till.payer.account_id}, {"cursor": "x"}):
        problem(payer.get("/v1/holds", **query), status=400, code="invalid_cursor")
    problem(payer.get("/v1/accounts", cursor=every), status=400, code="invalid_cursor")


# --- History and transactions ----------------------------------------------------------------------------------------


def history(phone: Phone, person: Person) -> list[tuple[Any, ...]]:
    items = phone.get(f"/v1/accounts/{person.account_id}/entries").json()["items"]
    return [(item["type"], item["amount"], item["counterpartyAccountId"]) for item in items]


def test_history_names_the_people_at_both_ends(till: Till, payer: Phone, merchant: Phone) -> None:
    promised, open_ = till.reserve(100), till.reserve(50, promised=False)
    till.capture(promised, amount=60, final=True)
    till.capture(open_, by=till.payer, to_account_id=till.merchant.account_id)
    assert history(payer, till.payer) == [
        ("RELEASE", 40, None),
        ("HOLD", -50, None),
        ("HOLD", -100, till.merchant.account_id),
        ("DEPOSIT", 1_000, None),
    ]
    assert history(merchant, till.merchant) == [
        ("CAPTURE", 50, till.payer.account_id),
        ("CAPTURE", 60, till.payer.account_id),
    ]


def test_a_capture_is_seen_by_both_and_nobody_else(till: Till, phones: Phones, payer: Phone, merchant: Phone) -> None:
    hold = till.reserve(100)
    taken = till.capture(hold, amount=60, final=True).body["transactionId"]
    path = f"/v1/transfers/{taken}"
    seen = payer.get(path).json()
    assert seen == merchant.get(path).json()
    assert [seen[name] for name in ("type", "amount", "fromAccountId", "toAccountId", "status")] == [
        *("CAPTURE", 60, till.payer.account_id, till.merchant.account_id, "COMPLETED"),
    ]
    opening = payer.get(f"/v1/transfers/{hold}").json()
    assert [opening[name] for name in ("type", "amount", "fromAccountId", "toAccountId")] == [
        *("HOLD", 100, till.payer.account_id, till.merchant.account_id),
    ]
    problem(merchant.get(f"/v1/transfers/{hold}"), status=404, code="not_found")
    stranger = phones.of(till.world.person("stranger"))
    problem(stranger.get(path), status=404, code="not_found")


def test_a_capture_is_taken_back_by_staff(till: Till, phones: Phones, payer: Phone, merchant: Phone) -> None:
    taken = till.capture(till.reserve(100)).body["transactionId"]
    staff = phones.of(may_reverse(till.world.person("staff")))
    answer = staff.post(f"/v1/transactions/{taken}/reversals", {"amount": 40, "reason": "goods came back"})
    assert answer.status_code == 201
    assert till.figures == (940, 0, 60)
    seen = merchant.get(f"/v1/transfers/{taken}").json()
    assert (seen["reversedAmount"], seen["reversalTransactionIds"]) == (40, [answer.json()["transactionId"]])
    assert history(payer, till.payer)[0] == ("REVERSAL", 40, till.merchant.account_id)
    assert history(merchant, till.merchant)[0] == ("REVERSAL", -40, till.payer.account_id)


# --- One order of checks ---------------------------------------------------------------------------------------------


def test_the_order_of_checks_when_reserving(till: Till, phones: Phones, world: World, snapshot: Snapshot) -> None:
    poor = frozen(world.person("poor"))
    dollars = world.person("yankee", currency="USD").account_id
    gone = closed(world.person("gone", currency="USD")).account_id
    owner, missing = till.payer, 2**62
    assert phones.of(poor).post("/v1/accounts", {"currency": "VND"}, key="used").status_code == 201
    assert phones.of(owner).post("/v1/accounts", {"currency": "VND"}, key="used").status_code == 201
    before = snapshot()

    def line(by: Person, source: int, payee: int, code: str, *, amount: int = 5_000, **more: Any) -> Line:
        sent = {"accountId": source, "toAccountId": payee, "amount": amount}
        return Line(by=by, path="/v1/holds", body={**sent, **more.pop("body", {})}, code=code, **more)

    past = {"expiresAt": "2020-01-01T00:00:00Z"}
    follow(
        [
            line(poor, missing, missing, "invalid_request", amount=0, key="used", status=400),
            line(poor, missing, missing, "invalid_request", body=past, key="used", status=400),
            line(poor, missing, missing, "idempotency_key_reused", key="used"),
            line(poor, missing, missing, "same_account"),
            line(poor, missing, gone, "not_found", status=404),
            line(poor, owner.account_id, gone, "not_found", status=404),
            line(poor, poor.account_id, missing, "not_found", status=404),
            line(poor, poor.account_id, gone, "account_closed"),
            line(poor, poor.account_id, dollars, "account_frozen"),
            line(owner, owner.account_id, dollars, "currency_mismatch"),
            line(owner, owner.account_id, till.merchant.account_id, "insufficient_funds"),
        ],
        phones,
    )
    assert snapshot() == before


def test_the_order_of_checks_when_capturing(till: Till, phones: Phones, world: World, snapshot: Snapshot) -> None:
    payer = till.payer
    ended, open_ = till.reserve(promised=False), till.reserve(promised=False)
    till.void(ended, by=payer)
    fund(account_id=till.merchant.account_id, amount=MAX_AMOUNT - 1, key="fortune")
    dollars = world.person("yankee", currency="USD").account_id
    gone = closed(world.person("gone", currency="USD")).account_id
    assert phones.of(payer).post("/v1/accounts", {"currency": "VND"}, key="used").status_code == 201
    frozen(payer)
    friend = world.person("friend", balance=100)
    thawed = till.reserve(promised=False, by=friend)
    before = snapshot()

    def line(of: object, payee: int | None, code: str, *, amount: int = 500, **more: Any) -> Line:
        sent = {"toAccountId": payee, "amount": amount}
        return Line(by=more.pop("by", payer), path=f"/v1/holds/{of}/capture", body=sent, code=code, **more)

    follow(
        [
            line(uuid4(), payer.account_id, "invalid_request", amount=0, key="used", status=400),
            line(uuid4(), payer.account_id, "idempotency_key_reused", key="used"),
            line(ended, payer.account_id, "not_found", status=404, by=till.merchant),
            line(ended, None, "invalid_request", status=400),
            line(ended, payer.account_id, "same_account"),
            line(ended, 2**62, "not_found", status=404),
            line(ended, gone, "illegal_state", status=409),
            line(open_, gone, "account_closed"),
            line(open_, dollars, "account_frozen"),
            line(thawed, dollars, "currency_mismatch", by=friend),
            line(thawed, till.merchant.account_id, "capture_exceeds_hold", by=friend),
            line(thawed, till.merchant.account_id, "balance_limit_exceeded", by=friend, amount=5),
        ],
        phones,
    )
    assert snapshot() == before


def test_a_late_capture_is_told_so(till: Till, merchant: Phone) -> None:
    hold = till.reserve()
    till.let_expire(hold)
    refused = problem(merchant.post(f"/v1/holds/{hold}/capture", {}), status=409, code="illegal_state")
    assert "EXPIRED" in refused["detail"]


def test_a_wallet_with_money_on_hold_is_not_closed(till: Till, payer: Phone) -> None:
    hold = till.reserve(1_000)
    path = f"/v1/accounts/{till.payer.account_id}/close"
    refused = problem(payer.post(path, {}), status=409, code="illegal_state")
    assert "1000 on hold" in refused["detail"]
    till.capture(hold)
    assert payer.post(path, {}).status_code == 200
    assert Hold.objects.get(pk=hold).status == "CAPTURED"
