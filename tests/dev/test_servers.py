"""The embedded servers: started, killed, started again."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis
from confluent_kafka.admin import AdminClient

from wallet_project.dev import root
from wallet_project.dev.processes import DevError
from wallet_project.dev.servers import HOST, Broker, Postgres, Server, Valkey


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "home"
    directory.mkdir()
    yield directory
    root.remove_home(directory)


@pytest.fixture(scope="module")
def postgres_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One for all tests, since making it takes longer than they do."""
    directory = tmp_path_factory.mktemp("postgres")
    yield directory / "postgres"
    root.remove_home(directory)


@pytest.fixture
def postgres(postgres_home: Path) -> Iterator[Postgres]:
    server = Postgres(postgres_home)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def valkey(home: Path) -> Iterator[Valkey]:
    server = Valkey(home / "valkey")
    server.start()
    yield server
    server.stop()


def _kill(server: Server) -> None:
    assert server.child is not None
    server.child.popen.kill()
    server.child.popen.wait()


def _write_word(server: Postgres) -> None:
    with psycopg.connect(server.url) as connection:
        connection.execute("DROP TABLE IF EXISTS kept")
        connection.execute("CREATE TABLE kept AS SELECT 'đồng' AS word")


def _read_word(server: Postgres) -> object:
    with psycopg.connect(server.url) as connection:
        row = connection.execute("SELECT word FROM kept").fetchone()
    return row and row[0]


def test_postgres_keeps_data_port_and_password_over_a_restart(postgres: Postgres) -> None:
    _write_word(postgres)
    url = postgres.url
    postgres.stop()

    postgres.start()

    assert postgres.url == url
    assert _read_word(postgres) == "đồng"


def test_postgres_is_set_up_as_in_production(postgres: Postgres) -> None:
    with psycopg.connect(postgres.url) as connection:
        settings: dict[str, str] = dict(connection.execute("SELECT name, setting FROM pg_settings").fetchall())
        ways_in = connection.execute("SELECT DISTINCT auth_method FROM pg_hba_file_rules").fetchall()
        text = connection.execute(
            "SELECT pg_encoding_to_char(encoding), datlocprovider, datlocale FROM pg_database"
            " WHERE datname = 'template1'"
        ).fetchone()

    expected = {"fsync": "on", "listen_addresses": HOST, "unix_socket_directories": "", "TimeZone": "UTC"}
    assert settings | expected == settings
    assert ways_in == [("scram-sha-256",)]
    assert text == ("UTF8", "b", "C.UTF-8")

    assert (postgres.home / "password").stat().st_mode & 0o777 == 0o600
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(postgres.url_for("postgres", "guessed", database="postgres"))


def test_postgres_recovers_from_a_kill_though_its_pid_file_names_a_stranger(postgres: Postgres) -> None:
    _write_word(postgres)
    _kill(postgres)
    pid_file = postgres.data / "postmaster.pid"
    account = postgres.account.popen_arguments() if postgres.account else {}

    with subprocess.Popen(["sleep", "60"], cwd="/", **account) as stranger:
        pid_file.write_text(f"{stranger.pid}\n" + pid_file.read_text().split("\n", 1)[1])
        postgres.start()
        assert stranger.poll() is None
        stranger.kill()

    assert _read_word(postgres) == "đồng"


def test_a_start_stops_the_server_that_a_killed_run_left_behind(postgres: Postgres) -> None:
    _write_word(postgres)
    orphan = postgres.child
    assert orphan is not None

    next_run = Postgres(postgres.home)
    next_run.start()

    assert orphan.exit_code is not None
    assert _read_word(next_run) == "đồng"
    next_run.stop()


def test_an_interrupted_initialisation_is_begun_again(postgres: Postgres) -> None:
    postgres.stop()
    unfinished = postgres.data.rename(postgres.home / "data.unfinished")

    postgres.start()

    assert not unfinished.exists()


def test_a_server_that_cannot_start_shows_the_end_of_its_log(valkey: Valkey) -> None:
    valkey.stop()
    (valkey.data / "appendonlydir" / "appendonly.aof.manifest").write_text("nonsense\n")

    with pytest.raises(DevError, match="Invalid AOF manifest file format"):
        valkey.start()


def test_valkey_keeps_what_it_acknowledged_over_a_kill(valkey: Valkey) -> None:
    with redis.Redis.from_url(valkey.url) as client:
        client.set("kept", "1")
    _kill(valkey)

    valkey.start()

    with redis.Redis.from_url(valkey.url) as client:
        assert client.get("kept") == b"1"


def test_valkey_wants_its_password(valkey: Valkey) -> None:
    with socket.create_connection((HOST, valkey.port)) as stranger:
        stranger.sendall(b"PING\r\n")
        assert stranger.recv(100).startswith(b"-NOAUTH")


def test_a_taken_port_is_left_to_its_new_owner(valkey: Valkey) -> None:
    valkey.stop()
    port = valkey.port

    with socket.create_server((HOST, port)):
        valkey.start()

    assert valkey.port != port


def test_broker_tells_clients_the_address_it_listens_on(home: Path) -> None:
    broker = Broker(home / "broker")
    broker.start()
    try:
        metadata = AdminClient({"bootstrap.servers": broker.url}).list_topics(timeout=10)
        assert [f"{node.host}:{node.port}" for node in metadata.brokers.values()] == [broker.url]
    finally:
        broker.stop()


@pytest.mark.parametrize("server", [Valkey, Broker])
def test_a_stopped_server_leaves_no_process(home: Path, server: type[Server]) -> None:
    instance = server(home / "server")
    instance.start()
    assert instance.child is not None
    pid = instance.child.popen.pid

    instance.stop()

    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIG_DFL)
