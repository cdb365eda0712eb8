"""Fixtures of the API's tests: phones that speak real HTTP to the product's own web server, and a past.

Every answer that a phone gets is held against the OpenAPI document.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import psycopg
import pytest

from tests.api.contract import must_be_as_documented
from tests.api.past import Past
from tests.api.phone import Phones

os.environ.setdefault("PAYEE_LOOKUPS_PER_USER", "100000")  # of services; who tests the limit says a smaller one


@pytest.fixture(scope="session")
def http(service: str) -> Iterator[httpx.Client]:
    """One client for all tests, with as many connections as the widest race has threads."""
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=20)
    hooks = {"response": [must_be_as_documented]}
    with httpx.Client(base_url=service, timeout=30, limits=limits, event_hooks=hooks) as client:
        yield client


@pytest.fixture
def phones(http: httpx.Client) -> Phones:
    return Phones(http)


@pytest.fixture
def past(connect: Callable[[str], psycopg.Connection[Any]], transactional_db: None) -> Past:
    return Past(connect("owner"))
