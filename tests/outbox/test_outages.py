"""The relay while something is away: the broker, the network, the database, or the relay itself."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import OperationalError, connection

from outbox.models import OutboxEvent, RelayState
from outbox.producer import Producer
from outbox.relay import Relay
from outbox.selectors import read_figures
from tests.conftest import free_port, wait_until
from tests.outbox.kit import (
    TOPICS,
    Listener,
    add_events,
    environment,
    make_topics,
    process,
    relay_to,
    waiting,
)
from wallet_project.dev import root
from wallet_project.dev.servers import Broker, Postgres

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.chaos]


@pytest.mark.parametrize("place", ["produced", "acknowledged"])
def test_a_killed_relay_loses_nothing(broker: Broker, listener: Listener, place: str) -> None:
    """What was sent and not marked is sent again, the same in every byte that a consumer goes by."""
    event_ids = add_events(50, keys=1)
    with process("-m", "tests.outbox.doomed_relay", place, environment=environment(broker.url)) as doomed:
        assert doomed.wait(timeout=60) == -signal.SIGKILL
    assert waiting() == 50
    if place == "acknowledged":
        listener.until_events(event_ids)

    assert relay_to(broker.url).run().published == 50

    listener.until_events(event_ids)
    listener.listen(seconds=0.3)
    assert listener.first_times("wallet.alerts") == {"0": event_ids}
    by_id = {(heard.event_id, heard.key, str(heard.value), str(heard.headers)) for heard in listener.heard}
    assert len(by_id) == 50
    assert len(listener.heard) == (100 if place == "acknowledged" else 50)


def test_a_broker_that_is_away_burns_nothing_and_is_not_hammered(tmp_path: Path) -> None:
    """Outage first, broker later: no attempt is counted, nobody is asked in vain, and all is drained by itself."""
    port = free_port()
    event_ids = add_events(100)
    relay = relay_to(f"127.0.0.1:{port}")
    connections = _count_made(relay.producer)
    deliver = relay.producer.deliver
    relay.producer.deliver = _impatient(relay.producer)  # type: ignore[method-assign]

    runs = [relay.run() for _ in range(200)]

    assert sum(run.failed > 0 for run in runs) == connections() == 1, "the others found a pause, and asked nobody"
    assert set(OutboxEvent.objects.values_list("attempts", "parked", "published")) == {(0, False, False)}
    figures = read_figures()
    assert (figures.unpublished, figures.failing_since is not None) == (100, True)
    assert "Connection refused" in figures.last_error

    relay.producer.deliver = deliver  # type: ignore[method-assign]
    server = Broker(tmp_path / "late")
    server._choose_port = lambda: port  # type: ignore[method-assign]
    server.start()
    try:
        make_topics(server.url, TOPICS)
        wait_until(lambda: relay.run().published == 100, seconds=30)
        with Listener(server.url) as listener:
            listener.until_events(event_ids)
    finally:
        server.stop()
    assert read_figures().failing_since is None


def test_pauses_grow_up_to_a_bound() -> None:
    add_events(1)
    relay = relay_to("127.0.0.1:1")
    relay.producer.deliver = _impatient(relay.producer)  # type: ignore[method-assign]
    seconds = []
    for _ in range(7):
        relay.run()
        (pause,) = relay._pauses.values()
        seconds.append(pause.seconds)
        pause.until = 0.0
    assert seconds == [0.5, 1, 2, 4, 8, 10, 10]


def test_a_paused_broker_and_a_relay_that_is_told_to_stop(broker: Broker, listener: Listener) -> None:
    """The relay ends at once; what was not acknowledged stays, and is sent again with the same ids."""
    first = add_events(10)
    with process("manage.py", "relay_outbox", environment=environment(broker.url)) as relay:
        wait_until(lambda: waiting() == 0, seconds=30)
        _signal(broker, signal.SIGSTOP)
        second = add_events(10)
        time.sleep(1)
        relay.send_signal(signal.SIGTERM)
        assert relay.wait(timeout=5) == 0
        assert waiting() == 10
        _signal(broker, signal.SIGCONT)

    assert relay_to(broker.url).run().published == 10
    listener.until_events([*first, *second])
    assert _is_in_order(listener, [*first, *second])


def test_a_pause_of_the_broker_is_waited_out(broker: Broker, listener: Listener) -> None:
    event_ids = add_events(10)
    _signal(broker, signal.SIGSTOP)
    threading.Timer(2, _signal, (broker, signal.SIGCONT)).start()

    assert relay_to(broker.url).run().published == 10
    listener.until_events(event_ids)


def test_a_network_that_is_cut(broker: Broker, listener: Listener) -> None:
    """Cut while batches are under way, again and again: at least once, in order, and drained at the end."""
    with Proxy(broker) as proxy, RelayThread(f"127.0.0.1:{proxy.port}", batch_size=20) as relay:
        event_ids: list[Any] = []
        for _ in range(5):
            event_ids += add_events(100, keys=3)
            time.sleep(0.15)
            proxy.cut()
            time.sleep(0.3)
            proxy.mend()
        wait_until(lambda: waiting() == 0, seconds=60)
        relay.check()
        assert proxy.accepted > 2, "it was cut, and came back by the same way"
    listener.until_events(event_ids)
    assert _is_in_order(listener, event_ids)


def test_database_connections_that_are_killed(broker: Broker, listener: Listener, superuser: Any) -> None:
    """Whatever was under way is sent again."""
    with process("manage.py", "relay_outbox", "--batch-size", "20", environment=environment(broker.url)) as relay:
        event_ids: list[Any] = []
        for _ in range(5):
            event_ids += add_events(100, keys=3)
            time.sleep(0.2)
            superuser.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND pid <> %s AND usename = 'wallet_app'",
                [_own_backend()],
            )
        wait_until(lambda: waiting() == 0, seconds=30)
        assert relay.poll() is None
    listener.until_events(event_ids)
    assert _is_in_order(listener, event_ids)


def test_a_lost_connection_marks_nothing(broker: Broker, superuser: Any, listener: Listener) -> None:
    add_events(10, keys=1)
    relay = relay_to(broker.url)
    deliver = relay.producer.deliver

    def deliver_and_lose_the_database(*args: Any, **options: Any) -> Any:
        reports = deliver(*args, **options)
        superuser.execute("SELECT pg_terminate_backend(%s)", [_own_backend()])
        return reports

    relay.producer.deliver = deliver_and_lose_the_database  # type: ignore[method-assign]
    with pytest.raises(OperationalError):
        relay.run()
    connection.close()
    relay.producer.deliver = deliver  # type: ignore[method-assign]
    assert waiting() == 10
    assert relay.run().published == 10
    listener.until(lambda: len(listener.heard) == 20)
    assert RelayState.objects.get().published_total == 10


def test_a_database_server_that_is_restarted(broker: Broker, listener: Listener, tmp_path_factory: Any) -> None:
    """A server of the test's own, stopped and started at work; the relay comes back by itself and sends all."""
    home = tmp_path_factory.mktemp("restarted")
    server = Postgres(home / "postgres")
    server.start()
    try:
        ours = _set_up(server, broker)
        with process("manage.py", "relay_outbox", "--batch-size", "10", environment=ours) as relay:
            first = _insert_alerts(ours["DATABASE_URL"], 200)
            listener.until(lambda: len(listener.heard) > 20)
            server.stop()
            server.start()
            second = _insert_alerts(ours["DATABASE_URL"], 200)
            listener.until_events([*first, *second])
            assert relay.poll() is None
        assert listener.first_times("wallet.alerts") == {"one": [*first, *second]}
    finally:
        server.stop()
        root.remove_home(home)


def test_a_client_that_came_through_a_fork_is_not_used(broker: Broker, listener: Listener) -> None:
    """librdkafka's threads stay behind in the parent: the child makes a client of its own, and ends."""
    producer = Producer({"bootstrap.servers": broker.url})
    relay = Relay(producer=producer)
    add_events(1)
    relay.run()
    (mine,) = add_events(1)
    connection.close()

    child = os.fork()
    if child == 0:
        status = 1
        with suppress(BaseException):
            status = 0 if relay.run().published == 1 else 2
        os._exit(status)

    wait_until(lambda: os.waitpid(child, os.WNOHANG) != (0, 0), seconds=30)
    listener.until_events([mine])
    assert waiting() == 0


# --- The means --------------------------------------------------------------------------------------------------------


class Proxy:
    """Stands between the relay and the broker, on a port of its own, and can be cut."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._is_cut = False
        self.accepted = 0

    def __enter__(self) -> "Proxy":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._listener.close()

    def cut(self) -> None:
        self._is_cut = True
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._open.clear()

    def mend(self) -> None:
        self._is_cut = False

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._is_cut:
                near.close()
                continue
            self.accepted += 1
            far = socket.create_connection(("127.0.0.1", self._broker.port))
            self._open += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=_copy, args=(source, target, self.port, self._broker.port), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket, near: int, far: int) -> None:
    """Pass bytes on; the broker names its own port to clients, so that is replaced, byte for byte."""
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data.replace(far.to_bytes(4, "big"), near.to_bytes(4, "big")))


def _set_up(server: Postgres, broker: Broker) -> dict[str, str]:
    """Roles, database and tables on an empty server; what a process needs to work there."""
    urls = {
        "SUPERUSER_DATABASE_URL": server.url,
        "MIGRATION_DATABASE_URL": server.url_for("wallet_owner", "o", database="wallet"),
    }
    ours = environment(broker.url) | {"DATABASE_URL": server.url_for("wallet_app", "a", database="wallet")}
    for command in ("bootstrap_roles", "migrate"):
        done = subprocess.run([sys.executable, "manage.py", command], env={**ours, **urls}, capture_output=True)
        assert done.returncode == 0, done.stderr
    return ours


def _insert_alerts(url: str, count: int) -> list[UUID]:
    event_ids = [uuid4() for _ in range(count)]
    insert = "INSERT INTO outbox_event (event_id, topic, key, payload) VALUES (%s, 'wallet.alerts', 'one', '{}')"
    with psycopg.connect(url) as session, session.cursor() as cursor:
        cursor.executemany(insert, [[event_id] for event_id in event_ids])
    return event_ids


class RelayThread:
    """A relay that runs all the time."""

    def __init__(self, servers: str, batch_size: int) -> None:
        self._relay = relay_to(servers, batch_size=batch_size)
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "RelayThread":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        assert self._error is None

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._relay.run(stopping=self._stop.is_set)
                self._stop.wait(0.02)
        except BaseException as error:
            self._error = error
        finally:
            connection.close()


def _is_in_order(listener: Listener, event_ids: list[Any]) -> bool:
    """Whether each key's events came in the order in which they were committed."""
    keys = dict(OutboxEvent.objects.filter(event_id__in=event_ids).values_list("event_id", "key"))
    expected: dict[str | None, list[Any]] = {}
    for event_id in event_ids:
        expected.setdefault(keys[event_id], []).append(event_id)
    return listener.first_times("wallet.alerts") == expected


def _signal(broker: Broker, number: signal.Signals) -> None:
    assert broker.child is not None
    broker.child.popen.send_signal(number)


def _own_backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def _count_made(producer: Producer) -> Callable[[], int]:
    """How many clients a producer has made."""
    made = 0
    connected = producer._connected

    def noted() -> Any:
        nonlocal made
        made += producer._client is None
        return connected()

    producer._connected = noted  # type: ignore[method-assign]
    return lambda: made


def _impatient(producer: Producer) -> Any:
    deliver = producer.deliver
    return lambda messages, *, stopping: deliver(messages, seconds=0.3, stopping=stopping)
