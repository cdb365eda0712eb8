"""The sandbox bank for tests: a process of its own with an empty book, told what to do, asked what it was sent.

    def test_a_lost_answer(sandbox_bank: Sandbox) -> None:
        sandbox_bank.tell(reference, "timeout")

The fixture also points this process's settings at it; other processes are given `sandbox_bank.environment`.
"""

import contextlib
import json
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from pytest_django import Settings

from wallet_project.dev.bank.server import SandboxBank
from wallet_project.dev.bank.teller import sign
from wallet_project.dev.processes import wait_until

_PATIENCE = 10.0  # seconds


class Sandbox:
    """A bank that runs, and what a test does with it."""

    def __init__(self, server: SandboxBank) -> None:
        self.server = server
        self.control = httpx.Client(timeout=_PATIENCE, headers={"Authorization": f"Bearer {server.token}"})

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make it the bank of another process."""
        return {
            "BANK_URL": self.url,
            "BANK_API_KEY": self.server.api_key,
            "BANK_WEBHOOK_SECRETS": ",".join(self.server.secrets),
        }

    def kill(self) -> None:
        """As `kill -9` does."""
        assert self.server.child is not None
        self.server.child.popen.kill()
        self.server.child.popen.wait()

    def start(self) -> None:
        """Again, after a kill; on the same port and book."""
        self.server.start()

    # --- Telling it ---------------------------------------------------------------------------------------------------

    def tell(self, reference: str, words: str) -> None:
        """What to do with a payment that has still to come; the words are those of docs/bank.md."""
        self._ask("PUT", f"payments/{reference}", {"words": words})

    def tell_all(self, words: str | None) -> None:
        """What to do with each payment that has no words of its own."""
        self._ask("PUT", "default", {"words": words})

    def act(self, reference: str, action: str, *, amount: int | None = None) -> None:
        """Do now: settle, refuse, return so much (or all), or notify once more."""
        self._ask("POST", f"payments/{reference}", {"action": action, "amount": amount})

    def break_down(self, fault: str | None) -> None:
        """Answer everything with this fault (hang, reset, 500, 502, broken), until told None. Nothing is taken."""
        self._ask("PUT", "outage", {"fault": fault})

    def send_notices_to(self, url: str | None) -> None:
        """Where notices go from now on; None keeps them back."""
        self._ask("PUT", "callback", {"url": url})

    # --- Asking it ----------------------------------------------------------------------------------------------------

    def payments(self) -> dict[str, dict[str, Any]]:
        """Its book: payments by reference."""
        return {payment["reference"]: payment for payment in self._ask("GET", "book")["payments"]}

    def totals(self) -> dict[tuple[str, str], dict[str, int]]:
        """Its sums, by direction and currency: `payments`, `accepted`, `settled`, `refused`, `returned`."""
        rows = self._ask("GET", "book")["totals"]
        return {(row.pop("direction"), row.pop("currency")): row for row in rows}

    def submits(self, reference: str | None = None) -> list[tuple[str, dict[str, Any]]]:
        """What it was sent to pay, each time, by reference: however it was answered."""
        found = self.requests(reference)
        puts = [request for request in found if request["method"] == "PUT"]
        return [(request["path"].removeprefix("/payments/"), json.loads(request["body"])) for request in puts]

    def requests(self, reference: str | None = None) -> list[dict[str, Any]]:
        """Every request for a payment: `method`, `path`, `body`, `received_at`."""
        found: list[dict[str, Any]] = self._ask("GET", "requests", reference=reference)
        return found

    def notices(self, reference: str | None = None) -> list[dict[str, Any]]:
        """Every notice: `event`, `body`, `attempts`, the last `answer`, and `copies` that have still to be taken."""
        found: list[dict[str, Any]] = self._ask("GET", "notices", reference=reference)
        return found

    def wait_for(self, reference: str, *, status: str) -> dict[str, Any]:
        """The payment, as soon as it has this status."""
        assert wait_until(lambda: self.payments().get(reference, {}).get("status") == status, seconds=_PATIENCE)
        return self.payments()[reference]

    def wait_until_told(self) -> None:
        """Return when every notice was taken."""
        assert wait_until(lambda: all(notice["copies"] == 0 for notice in self.notices()), seconds=2 * _PATIENCE)

    def signed(self, body: bytes, *, age: int = 0, secret: str | None = None) -> dict[str, str]:
        """The headers with which this bank would send a body.

        Args:
            age: how many seconds ago; negative for the future.
            secret: its own, if none is given.
        """
        timestamp = int(time.time()) - age
        signature = sign(body, timestamp=timestamp, secret=secret or self.server.secrets[0])
        return {
            "Content-Type": "application/json",
            "Bank-Timestamp": str(timestamp),
            "Bank-Signature": signature,
        }

    def _ask(self, method: str, path: str, body: Any = None, *, reference: str | None = None) -> Any:
        query = {} if reference is None else {"reference": reference}
        answer = self.control.request(method, f"{self.url}/sandbox/{path}", json=body, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextlib.contextmanager
def running(home: Path, *, webhook_secrets: Sequence[str] = (), delay: float = 0.02) -> Iterator[Sandbox]:
    """A bank at home in this directory, for as long as the block runs.

    Args:
        delay: seconds until it settles, and from there until it returns.
    """
    server = SandboxBank(
        home,
        api_key=secrets.token_urlsafe(24),
        secrets=webhook_secrets or [secrets.token_urlsafe(24)],
        token=secrets.token_urlsafe(24),
        delay=delay,
    )
    server.start()
    bank = Sandbox(server)
    try:
        with bank.control:
            yield bank
    finally:
        server.stop()


@pytest.fixture
def sandbox_bank(tmp_path: Path, settings: Settings) -> Iterator[Sandbox]:
    """A bank with an empty book, to which `gateway()` speaks. Its notices wait until `send_notices_to`."""
    with running(tmp_path / "bank") as bank:
        settings.BANK_URL = bank.url
        settings.BANK_API_KEY = bank.server.api_key
        settings.BANK_WEBHOOK_SECRETS = bank.server.secrets
        yield bank
