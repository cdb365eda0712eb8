"""What the world is told: a JSON Schema per event type, for those who consume and for the tests."""

import json
from functools import cache
from pathlib import Path
from typing import Any

_DIRECTORY = Path(__file__).parent / "event_schemas"

# The topics of money; alerts are for staff.
MONEY_TOPICS = ("wallet.transfers", "wallet.deposits", "wallet.withdrawals", "wallet.holds")


@cache
def event_schemas() -> dict[str, dict[str, Any]]:
    """The schema of each event's payload, by the event's CloudEvents type."""
    return {file.stem: json.loads(file.read_text()) for file in sorted(_DIRECTORY.glob("*.json"))}


def schemas_body() -> dict[str, Any]:
    """The schemas as the API shows them."""
    return {"schemas": event_schemas()}
