"""What the project is told about its servers, and who may start them."""

import os
import subprocess
from pathlib import Path

import httpx
import pytest

from wallet_project.dev import run, stack
from wallet_project.dev.processes import DevError

_URLS = {
    "DATABASE_URL": "postgresql://app@db/wallet",
    "MIGRATION_DATABASE_URL": "postgresql://owner@db/wallet",
    "SUPERUSER_DATABASE_URL": "postgresql://postgres@db/postgres",
    "REDIS_URL": "redis://cache/0",
    "KAFKA_BOOTSTRAP_SERVERS": "broker:9092",
}


@pytest.fixture(autouse=True)
def _no_servers_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*_URLS, *_BANK, "WALLET_DEV_VARIABLES"):
        monkeypatch.delenv(name, raising=False)


def test_servers_that_the_developer_names_are_used_and_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, url in _URLS.items():
        monkeypatch.setenv(name, url)

    with stack.running(tmp_path, wallet_env="development") as servers:
        assert not servers.servers
        assert servers.environment | _URLS == servers.environment


def test_half_a_database_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", _URLS["DATABASE_URL"])

    with (
        pytest.raises(DevError, match="so MIGRATION_DATABASE_URL and SUPERUSER_DATABASE_URL must be"),
        stack.running(tmp_path, wallet_env="test", needs_superuser=True),
    ):
        pass


def test_only_the_missing_servers_are_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _URLS.keys() - {"REDIS_URL"}:
        monkeypatch.setenv(name, _URLS[name])

    with stack.running(tmp_path, wallet_env="development") as servers:
        assert [server.name for server in servers.servers] == ["valkey"]
        assert servers.environment["REDIS_URL"] == servers.servers[0].url
        assert servers.environment["DATABASE_URL"] == _URLS["DATABASE_URL"]


_BANK = {"BANK_URL": "https://bank", "BANK_API_KEY": "key", "BANK_WEBHOOK_SECRETS": "new,old"}


def test_a_sandbox_bank_is_started_where_notices_have_somewhere_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, url in _URLS.items():
        monkeypatch.setenv(name, url)
    # What was there before the bank was, as in a checkout of yesterday.
    (tmp_path / "keys.json").write_text('{"SECRET_KEY": "yesterday\'s"}')

    seen = []
    for _ in range(2):
        with stack.running(tmp_path, wallet_env="development", callback_url="http://127.0.0.1:1/there") as servers:
            bank = servers.sandbox_bank
            assert bank is not None
            assert servers.servers == [bank]
            assert servers.environment["SECRET_KEY"] == "yesterday's"
            told = httpx.get(
                f"{servers.environment['BANK_URL']}/sandbox/book",
                headers={"Authorization": f"Bearer {servers.environment['SANDBOX_BANK_TOKEN']}"},
            )
            assert told.json() == {"payments": [], "totals": []}
            seen.append({name: servers.environment[name] for name in _BANK})
            process = bank.child
        assert process is not None
        assert process.exit_code == 0
    assert seen[0] == seen[1], "after a restart it is the same bank"


def test_a_bank_that_the_developer_names_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, url in (_URLS | _BANK).items():
        monkeypatch.setenv(name, url)

    with stack.running(tmp_path, wallet_env="development", callback_url="http://127.0.0.1:1/there") as servers:
        assert servers.sandbox_bank is None
        assert servers.environment | _BANK == servers.environment

    monkeypatch.delenv("BANK_API_KEY")
    with (
        pytest.raises(DevError, match="BANK_URL is set, so BANK_API_KEY must be, too"),
        stack.running(tmp_path, wallet_env="development"),
    ):
        pass


def test_a_shell_that_sourced_the_environment_file_does_not_replace_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "env"
    stack.write_environment(file, {"REDIS_URL": "redis://:a'b c@127.0.0.1:1/0"})

    assert file.stat().st_mode & 0o777 == 0o600
    shell = subprocess.run(
        ["sh", "-c", f"set -a; . {file}; env"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    sourced = dict(line.split("=", 1) for line in shell.stdout.splitlines())
    assert stack.read_environment(file).items() <= sourced.items()

    for name, value in stack.read_environment(file).items():
        monkeypatch.setenv(name, value)
    stack.forget_our_variables()
    assert not os.environ.keys() & {"REDIS_URL", "WALLET_DEV_VARIABLES"}


def test_a_second_run_in_one_checkout_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "HOME", tmp_path / ".dev")

    with run.sole_owner_of_home(), pytest.raises(DevError, match=f"process {os.getpid()}"), run.sole_owner_of_home():
        pass

    with run.sole_owner_of_home():
        pass
