"""Twenty phones on a bad network: answers lost, connections cut, retries with the same key."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.bad_network.game import run
from tests.world import PASSWORD, World

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.chaos]

SECONDS = 300 if os.environ.get("WALLET_SOAK") else 4


@pytest.mark.timeout(900)
def test_no_dong_is_lost_or_doubled(service: str, world: World, snapshot: Callable[[], dict[str, Any]]) -> None:
    people = [world.person(f"phone-{number}", balance=1_000) for number in range(20)]

    counts = run(url=service, users=[(person.user.username, PASSWORD) for person in people], seconds=SECONDS)

    print(dict(counts))
    assert counts["completed"] > 20
    assert counts["no answer"] > 0
    assert counts["replayed"] > 0
    # In the book: the transfers that phones know of and twenty deposits, nothing that they do not know of.
    assert snapshot()["journal_transaction"] == counts["completed"] + 20
