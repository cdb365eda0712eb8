"""Brokers of the tests' own: they are paused, cut off and killed, so nobody else may depend on them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.outbox.kit import TOPICS, Listener, make_topics
from wallet_project.dev import kafka as apache
from wallet_project.dev.servers import Broker

SOAK = os.environ.get("WALLET_SOAK") == "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A machine without Java or the jars leaves out exactly the tests that need Apache Kafka, and says how many."""
    lacking = apache.missing()
    if lacking is None or os.environ.get("CI"):
        return  # CI has both, or shall fail.
    needy = [item for item in items if "kafka" in getattr(item, "fixturenames", ())]
    if needy:
        config.hook.pytest_deselected(items=needy)
        items[:] = [item for item in items if item not in needy]
        terminal = config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.write_line(f"{len(needy)} tests that need Apache Kafka are left out: this machine lacks {lacking}")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """An empty broker that speaks Kafka's protocol, with the topics made."""
    server = Broker(tmp_path / "broker")
    server.start()
    try:
        make_topics(server.url, TOPICS)
        yield server
    finally:
        if server.child:
            server.child.popen.kill()  # It would wait for its clients to leave.
        server.stop()


@pytest.fixture
def listener(broker: Broker) -> Iterator[Listener]:
    """Hears all that the broker is told."""
    with Listener(broker.url) as listener:
        yield listener


@pytest.fixture(scope="session")
def _kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apache.Kafka]:
    with apache.running(tmp_path_factory.mktemp("kafka")) as server:
        make_topics(server.url, TOPICS)
        yield server


@pytest.fixture
def kafka(_kafka: apache.Kafka) -> apache.Kafka:
    """Apache Kafka, up; its topics hold what earlier tests left, so listen from now on only."""
    if _kafka.child is None or _kafka.child.exit_code is not None:
        _kafka.start()
    return _kafka


@pytest.fixture
def kafka_listener(kafka: apache.Kafka) -> Iterator[Listener]:
    """Hears all that Apache Kafka is told from now on."""
    with Listener(kafka.url, from_now=True) as listener:
        yield listener
