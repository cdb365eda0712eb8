"""Fixtures of the API's tests: phones that speak real HTTP to the product's own web server, and a past."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import psycopg
import pytest

from tests.api.past import Past
from tests.api.phone import Phones


@pytest.fixture(scope="session")
def http(service: str) -> Iterator[httpx.Client]:
    """One client for all tests, with as many connections as the widest race has threads."""
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=20)
    with httpx.Client(base_url=service, timeout=30, limits=limits) as client:
        yield client


@pytest.fixture
def phones(http: httpx.Client) -> Phones:
    return Phones(http)


@pytest.fixture
def past(connect: Callable[[str], psycopg.Connection[Any]], transactional_db: None) -> Past:
    return Past(connect("owner"))
