"""Fixtures for the tests of the gateway and of the sandbox."""

from collections.abc import Iterator

import pytest

from tests.bank.receiver import Door, open_door
from tests.bank.sandbox import Sandbox


@pytest.fixture
def door(sandbox_bank: Sandbox) -> Iterator[Door]:
    """The wallet's door, to which the bank sends its notices."""
    with open_door() as door:
        sandbox_bank.send_notices_to(door.url)
        yield door
        sandbox_bank.send_notices_to(None)
