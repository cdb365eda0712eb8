"""The app: does what docs/mobile.md tells it to, and nothing else."""

import random
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

# docs/mobile.md, "How long to wait", a hundred times faster: a test has no patience.
FIRST_WAIT, LONGEST_WAIT = 0.01, 0.6  # seconds


@dataclass(kw_only=True)
class Payment:
    """A command, stored before it is sent."""

    key: str
    body: dict[str, Any]
    transaction_id: str | None = None
    refusal: str | None = None


@dataclass(kw_only=True)
class App:
    """One phone of one user.

    `network` is where it sends; `payments` is its own memory of what it wanted and what came of it.
    """

    network: str
    username: str
    password: str
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    payments: list[Payment] = field(default_factory=list)
    _http: httpx.Client = field(init=False)
    _access: str = ""
    _refresh: str = ""

    def __post_init__(self) -> None:
        # A connection of its own for each request, so that each meets the network's moods anew.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.Client(base_url=self.network, timeout=10, limits=limits, headers={"Connection": "close"})

    def close(self) -> None:
        self._http.close()

    def sign_in(self) -> None:
        credentials = {"username": self.username, "password": self.password}
        answer = self._until_answered("POST", "/v1/auth/token", credentials)
        assert answer.status_code == 200, answer.text
        self._keep(answer)

    def pay(self, *, from_account_id: int, to_account_id: int, amount: int) -> Payment:
        """Make a payment and see it through: a new key, stored, sent until there is a final answer."""
        body = {"fromAccountId": from_account_id, "toAccountId": to_account_id, "amount": amount}
        payment = Payment(key=str(uuid.uuid4()), body=body)
        self.payments.append(payment)
        answer = self._signed_in("POST", "/v1/transfers", body, key=payment.key)
        if answer.status_code == 201:
            payment.transaction_id = answer.json()["transactionId"]
            self.counts["replayed"] += answer.headers.get("Idempotent-Replayed") == "true"
        else:
            payment.refusal = answer.json()["code"]
        return payment

    def balance(self, account_id: int) -> int:
        answer = self._signed_in("GET", f"/v1/accounts/{account_id}/balance")
        assert answer.status_code == 200, answer.text
        return int(answer.json()["balance"])

    def history(self, account_id: int) -> list[dict[str, Any]]:
        """All pages, newest first."""
        items: list[dict[str, Any]] = []
        cursor = ""
        while True:
            query = f"?limit=200&cursor={cursor}" if cursor else "?limit=200"
            answer = self._signed_in("GET", f"/v1/accounts/{account_id}/entries{query}")
            assert answer.status_code == 200, answer.text
            page = answer.json()
            items += page["items"]
            cursor = page["nextCursor"]
            if cursor is None:
                return items

    def wallets(self) -> list[dict[str, Any]]:
        answer = self._signed_in("GET", "/v1/accounts")
        assert answer.status_code == 200, answer.text
        return list(answer.json()["items"])

    def _signed_in(self, method: str, path: str, body: Any = None, *, key: str | None = None) -> httpx.Response:
        while True:
            headers = {"Authorization": f"Bearer {self._access}"} | ({"Idempotency-Key": key} if key else {})
            answer = self._until_answered(method, path, body, headers=headers)
            if answer.status_code != 401:
                return answer
            self._renew()

    def _renew(self) -> None:
        """A refresh token works once: if the answer is lost, the user signs in again."""
        self.counts["renewed"] += 1
        try:
            answer = self._send("POST", "/v1/auth/token/refresh", {"refresh": self._refresh}, {})
        except httpx.TransportError:
            answer = None
        if answer is not None and answer.status_code == 200:
            self._keep(answer)
        else:
            self.sign_in()

    def _keep(self, answer: httpx.Response) -> None:
        tokens = answer.json()
        self._access, self._refresh = tokens["access"], tokens["refresh"]

    def _until_answered(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """Send it, and again when there is no answer, 429 or 5xx; each wait is longer than the one before."""
        wait = FIRST_WAIT
        while True:
            try:
                answer = self._send(method, path, body, headers or {})
            except httpx.TransportError:
                self.counts["no answer"] += 1
            else:
                if answer.status_code != 429 and answer.status_code < 500:
                    return answer
                self.counts[f"status {answer.status_code}"] += 1
            time.sleep(wait * self.rng.uniform(1, 1.5))
            wait = min(wait * 2, LONGEST_WAIT)

    def _send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> httpx.Response:
        self.counts["sent"] += 1
        return self._http.request(method, path, json=body, headers=headers)


def play(apps: dict[int, App], *, until: Callable[[], bool], app: App, account_id: int) -> None:
    """Pay random people random amounts until it is enough; `apps` are all players by wallet."""
    others = [wallet for wallet in apps if wallet != account_id]
    while not until():
        app.pay(from_account_id=account_id, to_account_id=app.rng.choice(others), amount=app.rng.randint(1, 400))
