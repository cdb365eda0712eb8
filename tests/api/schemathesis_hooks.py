"""What no JSON Schema can say: requests that it allows and the API refuses are left out; and ids that are there."""

import json
import os
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import schemathesis

# The caller's wallets, and a transaction and a hold between them, told by the test.
ACCOUNTS = [int(number) for number in os.environ["KNOWN_ACCOUNTS"].split(",")]
KNOWN_IDS = {"transactionId": os.environ["KNOWN_TRANSACTION"], "holdId": os.environ["KNOWN_HOLD"]}

_YEAR = re.compile(r"(\d{4})-\d\d-\d\d")
_TOMORROW = (datetime.now(UTC) + timedelta(days=1)).isoformat()
_METADATA_BYTES, _METADATA_DEPTH = 4096, 5


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """No cursors but those that a list issued, no moments before 1970 or to come, but for a hold's end, which is one to
    come; metadata within its bounds.
    """
    query = case.query if isinstance(case.query, dict) else {}
    body = case.body if isinstance(case.body, dict) else {}
    metadata, expires_at = body.get("metadata"), body.get("expiresAt")
    years = [found[1] for name in ("at", "from", "to") if (found := _YEAR.match(str(query.get(name))))]
    return (
        "cursor" not in query
        and (not _YEAR.match(str(expires_at)) or expires_at == _TOMORROW)
        and all("1971" <= year <= "2025" for year in years)
        and _depth(metadata) <= _METADATA_DEPTH
        and len(json.dumps(metadata)) <= _METADATA_BYTES
    )


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """JSON Schema takes 1.0 for an integer, this API does not; a hold's time is one to come; and every second account
    is one of the caller's.
    """
    if not isinstance(body, dict):
        return body
    return {name: _sent(name, value) for name, value in body.items()}


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: Any) -> Any:
    """Every second id is one that is there; but no wallet is closed that others still need."""
    if not isinstance(path_parameters, dict) or context.operation.path.endswith("/close"):
        return path_parameters
    return {name: _known(name, value) for name, value in path_parameters.items()}


def _sent(name: str, value: Any) -> Any:
    if name == "expiresAt" and isinstance(value, str) and _YEAR.match(value):
        return _TOMORROW
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    return _known(name, number)


def _known(name: str, value: Any) -> Any:
    if name.endswith("ccountId") and type(value) is int and 0 < value < 2**63 and value % 2:
        return ACCOUNTS[value % 4 // 2]
    if name in KNOWN_IDS and isinstance(value, str) and re.fullmatch("[0-9a-f-]{35}[0-7]", value):
        return KNOWN_IDS[name]
    return value


def _depth(value: Any) -> int:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if children is None else 1 + max(map(_depth, children), default=0)
