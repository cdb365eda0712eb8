"""The sandbox bank by itself: who may ask it, how it ends, and that its page tells all its words."""

import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.conf import settings as project

from tests.bank.kit import instruction, outcome
from tests.bank.receiver import Door
from tests.bank.sandbox import Sandbox
from tests.conftest import wait_until
from transfers.bank.gateway import NoAnswer, Payment, gateway
from wallet_project.dev.bank import behaviours

PAGE = project.BASE_DIR / "docs" / "bank.md"


def test_the_page_tells_every_word() -> None:
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)[^`]*` \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert {word: rows[word] for word in rows if word in behaviours.WORDS} == behaviours.WORDS


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("GET", f"/sandbox/{name}") for name in ("book", "requests", "notices")),
        *(("PUT", f"/sandbox/{name}") for name in ("default", "outage", "callback", "payments/r")),
        ("POST", "/sandbox/payments/r"),
    ],
)
def test_only_who_has_the_token_tells_it_anything(sandbox_bank: Sandbox, method: str, path: str) -> None:
    for token in ("", "wrong", sandbox_bank.server.api_key):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = httpx.request(method, sandbox_bank.url + path, headers=headers, json={"words": "wait"})
        assert answer.status_code == 401
    assert sandbox_bank.payments() == {}


def test_what_is_told_and_makes_no_sense_is_refused(sandbox_bank: Sandbox) -> None:
    gateway().submit(instruction(reference="refused", destination="sandbox:refuse-now"))
    cases: list[tuple[str, str, Any, int]] = [
        ("PUT", "payments/r", {"words": "nonsense"}, 400),
        ("PUT", "payments/r", {"words": "settle,refuse"}, 400),
        ("PUT", "payments/r", {"words": 1}, 400),
        ("PUT", "outage", {"fault": ["hang"]}, 400),
        ("POST", "payments/refused", {"action": "return", "amount": "1"}, 400),
        ("POST", "payments/refused", {}, 409),
        ("PUT", "payments/r", [], 400),
        ("PUT", "outage", {"fault": "fire"}, 400),
        ("PUT", "nothing", {}, 400),
        ("POST", "payments/unknown", {"action": "settle"}, 409),
        ("POST", "payments/refused", {"action": "settle"}, 409),
        ("POST", "payments/refused", {"action": "return"}, 409),
        ("POST", "payments/refused", {"action": "dance"}, 409),
    ]
    for method, path, body, status in cases:
        answer = sandbox_bank.control.request(method, f"{sandbox_bank.url}/sandbox/{path}", json=body)
        assert answer.status_code == status, (path, body, answer.text)
        assert answer.json()["reason"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"direction":"OUT","amount":1000.0,"currency":"VND","destination":"d","description":""}',
        b'{"direction":"OUT","amount":"1000","currency":"VND","destination":"d","description":""}',
        b'{"direction":"OUT","amount":true,"currency":"VND","destination":"d","description":""}',
        b'{"direction":"OUT","amount":0,"currency":"VND","destination":"d","description":""}',
        b'{"direction":"OUT","amount":1,"currency":"vnd","destination":"d","description":""}',
        b'{"direction":"OUT","amount":1,"currency":"VND","destination":null,"description":""}',
        b'{"direction":"IN","amount":1,"currency":"VND","destination":"d","description":""}',
        b'{"direction":"UP","amount":1,"currency":"VND","destination":"d","description":""}',
        b'{"direction":"OUT","amount":1,"currency":"VND","destination":"d","description":"","more":1}',
    ],
)
def test_what_is_no_payment_is_not_taken(sandbox_bank: Sandbox, body: bytes) -> None:
    """The bank is strict with us, too: else a test against it would prove little."""
    key = {"Authorization": f"Bearer {sandbox_bank.server.api_key}"}
    answer = httpx.put(f"{sandbox_bank.url}/payments/r", content=body, headers=key)
    assert answer.status_code == 422
    assert answer.json().keys() == {"reference", "reason"}
    assert sandbox_bank.payments() == {}


def test_what_was_told_for_a_payment_goes_before_its_own_words_and_those_before_what_was_told_for_all(
    sandbox_bank: Sandbox,
) -> None:
    sandbox_bank.tell_all("wait")
    own, told, plain = instruction("refuse-now"), instruction("refuse-now"), instruction()
    sandbox_bank.tell(told.reference, "settle=0")
    for order in (own, told, plain):
        gateway().submit(order)
    sandbox_bank.wait_for(own.reference, status="REFUSED")
    sandbox_bank.wait_for(told.reference, status="SETTLED")
    assert sandbox_bank.payments()[plain.reference]["status"] == "ACCEPTED"
    sandbox_bank.tell_all(None)
    sandbox_bank.kill()
    sandbox_bank.start()
    later = instruction()
    gateway().submit(later)
    sandbox_bank.wait_for(later.reference, status="SETTLED")


def test_many_payments_at_once_are_all_counted_and_told(sandbox_bank: Sandbox, door: Door) -> None:
    orders = [instruction("return=1" if number % 3 == 0 else None, amount=number + 1) for number in range(60)]
    with ThreadPoolExecutor(8) as pool:
        assert all(isinstance(said, Payment) for said in pool.map(gateway().submit, orders))
    wait_until(lambda: len(sandbox_bank.notices()) == 80, seconds=20)
    sandbox_bank.wait_until_told()
    told = [item.notice for item in door.received]
    assert len({notice["noticeId"] for notice in told}) == len(told) == 80
    total = sandbox_bank.totals()["OUT", "VND"]
    assert total["settled"] == sum(order.amount for order in orders)
    assert total["returned"] == 20


def test_a_kill_in_the_middle_of_everything_loses_nothing_that_was_answered(sandbox_bank: Sandbox, door: Door) -> None:
    taken: list[str] = []
    stop = threading.Event()

    def pay() -> None:
        while not stop.is_set():
            order = instruction()
            if outcome(gateway().submit, order) is not NoAnswer:
                taken.append(order.reference)

    with ThreadPoolExecutor(4) as pool:
        work = [pool.submit(pay) for _ in range(4)]
        for so_many in (50, 100, 150):
            wait_until(lambda so_many=so_many: len(taken) >= so_many, seconds=30)  # type: ignore[misc]
            sandbox_bank.kill()
            sandbox_bank.start()
        stop.set()
        for thread in work:
            thread.result()
    wait_until(lambda: sandbox_bank.totals()["OUT", "VND"]["accepted"] == 0, seconds=20)
    sandbox_bank.wait_until_told()
    assert set(taken) <= sandbox_bank.payments().keys()
    assert {notice["reference"] for notice in sandbox_bank.notices()} == sandbox_bank.payments().keys()
    assert set(taken) <= {item.notice["reference"] for item in door.received}


def test_it_ends_in_good_order_when_it_is_asked_to(sandbox_bank: Sandbox) -> None:
    """Even while a caller waits for an answer that will not come, and another holds a connection open."""
    gateway().submit(instruction())
    sandbox_bank.break_down("hang")
    child = sandbox_bank.server.child
    assert child is not None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(outcome, gateway().submit, instruction())
        wait_until(lambda: len(sandbox_bank.submits()) == 2, seconds=10)
        child.popen.send_signal(signal.SIGTERM)
        assert child.popen.wait(5) == 0
        assert waiting.result(5) is NoAnswer


def test_two_do_not_work_on_one_book(sandbox_bank: Sandbox, tmp_path: Path) -> None:
    home = sandbox_bank.server.data
    command = [sys.executable, "-m", "wallet_project.dev.bank", "--home", str(home), "--port", "0"]
    second = subprocess.run(command, cwd=project.BASE_DIR, capture_output=True, text=True, check=False, timeout=30)
    assert (second.returncode, second.stderr) == (1, "Another process works on this book.\n")
