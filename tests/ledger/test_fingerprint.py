"""The fingerprint is of the parsed command: its JSON may be written in many ways, and means one thing."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.commands import fingerprint_of

BODY = {"fromAccountId": 1, "toAccountId": 2, "amount": 10, "reference": "Tiền nhà", "metadata": {"a": 1, "b": [1, 2]}}


def _parsed(text: str) -> bytes:
    return fingerprint_of("transfer", json.loads(text))


SAME = {
    "keys in another order": json.dumps(dict(reversed(BODY.items()))),
    "keys of an inner object in another order": json.dumps({**BODY, "metadata": {"b": [1, 2], "a": 1}}),
    "white space": json.dumps(BODY, indent=4),
    "escapes": json.dumps(BODY, ensure_ascii=True),
    "no escapes": json.dumps(BODY, ensure_ascii=False),
    "an escaped slash and letter": json.dumps(BODY).replace('"amount"', '"\\u0061mount"'),
    "a null for what is absent": json.dumps({**BODY, "description": None}),
}
OTHER: dict[str, dict[str, Any]] = {
    "another amount": {**BODY, "amount": 11},
    "an amount as text": {**BODY, "amount": "10"},
    "true for one": {**BODY, "fromAccountId": True},
    "the accounts changed over": {**BODY, "fromAccountId": 2, "toAccountId": 1},
    "no reference": {name: value for name, value in BODY.items() if name != "reference"},
    "an empty reference": {**BODY, "reference": ""},
    "another case": {**BODY, "reference": "tiền nhà"},
    "a composed letter decomposed": {**BODY, "reference": "Tie\u0302\u0300n nha\u0300"},
    "other metadata": {**BODY, "metadata": {"a": 1, "b": [2, 1]}},
    "no metadata": {**BODY, "metadata": None},
    "empty metadata": {**BODY, "metadata": {}},
}


@pytest.mark.parametrize("text", SAME.values(), ids=SAME.keys())
def test_the_same_command(text: str) -> None:
    assert _parsed(text) == fingerprint_of("transfer", BODY)


@pytest.mark.parametrize("body", OTHER.values(), ids=OTHER.keys())
def test_another_command(body: dict[str, Any]) -> None:
    assert fingerprint_of("transfer", body) != fingerprint_of("transfer", BODY)


def test_another_path_is_another_command() -> None:
    assert fingerprint_of("close_account:1", {}) != fingerprint_of("close_account:11", {})
    assert fingerprint_of("transfer", BODY) != fingerprint_of("withdrawal", BODY)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
_BODIES = st.dictionaries(st.text(), _VALUES, max_size=4)


@given(_BODIES, _BODIES)
def test_two_bodies_share_one_only_when_they_are_equal_but_for_nulls(one: Any, two: Any) -> None:
    def canonical(body: dict[str, Any]) -> str:
        return json.dumps({name: value for name, value in body.items() if value is not None}, sort_keys=True)

    equal = canonical(one) == canonical(two)
    assert (fingerprint_of("transfer", one) == fingerprint_of("transfer", two)) == equal


def test_it_is_32_bytes() -> None:
    assert len(fingerprint_of("transfer", BODY)) == 32
