"""The servers that the project needs, and the environment variables that tell it where they are.

A server whose variable is set already is not started: the developer has another one in mind.
"""

import json
import os
import secrets
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from wallet_project.dev import console, processes
from wallet_project.dev.bank.server import SandboxBank
from wallet_project.dev.processes import Child, DevError
from wallet_project.dev.servers import Broker, Postgres, Server, Valkey, write_private

CHECKOUT = Path(__file__).resolve().parents[2]
_DATABASE = "wallet"
_OWNER, _APPLICATION = "wallet_owner", "wallet_app"
_DATABASE_VARIABLES = ("DATABASE_URL", "MIGRATION_DATABASE_URL", "SUPERUSER_DATABASE_URL")
_BANK_VARIABLES = ("BANK_URL", "BANK_API_KEY", "BANK_WEBHOOK_SECRETS")
_SERVER_VARIABLES = (*_DATABASE_VARIABLES, "REDIS_URL", "KAFKA_BOOTSTRAP_SERVERS", *_BANK_VARIABLES)
_BANK_KEYS = ("BANK_API_KEY", "BANK_WEBHOOK_SECRETS", "SANDBOX_BANK_TOKEN")
# On one machine everybody has the same address, so limits per address are out of the way.
_ONE_ADDRESS = {"SIGN_INS_PER_ADDRESS": "10000", "SIGN_UPS_PER_ADDRESS": "10000"}
_OURS = "WALLET_DEV_VARIABLES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What runs, and how the project reaches it."""

    home: Path
    servers: list[Server]
    environment: dict[str, str]
    """What the project needs to be told, and no more."""

    @property
    def sandbox_bank(self) -> SandboxBank | None:
        """The bank, unless there is none or the developer has another one in mind."""
        return next((server for server in self.servers if isinstance(server, SandboxBank)), None)

    @property
    def children(self) -> list[Child]:
        return [server.child for server in self.servers if server.child]

    def child_environment(self) -> dict[str, str]:
        """The developer's own variables, overruled by ours."""
        ours = {processes.MARK: str(self.home), "PYTHONUNBUFFERED": "1"}
        return {**os.environ, **self.environment, **ours}

    def manage(self, command: str, *, name: str) -> None:
        """Run a command of `manage.py`, shown under this name.

        Raises:
            DevError: it failed; its output stands above.
        """
        arguments = [sys.executable, "manage.py", command]
        child = Child(arguments, name=name, environment=self.child_environment(), cwd=CHECKOUT)
        if child.run_to_end() != 0:
            raise DevError(f"`manage.py {command}` failed, see above, so everything is stopped.")

    def make_roles(self) -> None:
        """Roles, their passwords and time limits, and the database itself: this takes a superuser."""
        if "SUPERUSER_DATABASE_URL" in self.environment:
            self.manage("bootstrap_roles", name="roles")
        else:
            console.say("no SUPERUSER_DATABASE_URL: the database and its roles are expected to be there")


@contextmanager
def running(
    home: Path, *, wallet_env: str, needs_superuser: bool = False, callback_url: str | None = None
) -> Iterator[Stack]:
    """The servers, at home in this directory, for as long as the block runs.

    Args:
        callback_url: where a bank is to send its notices; without it there is no bank.

    Raises:
        DevError: a server does not start, or the developer's variables name only half of one.
    """
    given = _given_servers(needs_superuser=needs_superuser)
    keys = _keys(home)
    environment = {"WALLET_ENV": wallet_env, "SECRET_KEY": keys["SECRET_KEY"], **given}
    if wallet_env == "development":
        environment |= {name: os.environ.get(name, limit) for name, limit in _ONE_ADDRESS.items()}
    servers = [server for variable, server in _servers(home).items() if variable not in given]
    if callback_url is not None and "BANK_URL" not in given:
        servers.append(_bank(home, keys, callback_url=callback_url))
    with ExitStack() as stops:
        for server in servers:
            server.start()
            console.say(f"{server.name} is up on port {server.port}")
            stops.callback(server.stop)
            environment |= _variables(server, keys)
        yield Stack(home=home, servers=servers, environment=environment)


def stop_leftovers(home: Path) -> None:
    """Stop what a killed run left behind in this home.

    Web server and workers are killed: what they left undone is done again anyway. The servers may shut down.
    """
    processes.stop_processes(processes.marked_processes(home), signal.SIGKILL)
    keys = _keys(home)
    for server in (*_servers(home).values(), _bank(home, keys)):
        server.stop_leftover()


def write_environment(file: Path, environment: Mapping[str, str]) -> None:
    """For a shell to source. The last variable names the others, for `forget_our_variables`."""
    variables = {**environment, _OURS: " ".join(environment)}
    write_private(file, "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items()))


def read_environment(file: Path) -> dict[str, str]:
    """The variables in such a file."""
    return dict(line.split("=", 1) for line in shlex.split(file.read_text()))


def forget_our_variables() -> None:
    """A shell that has sourced that file does not want the servers in it, perhaps long gone, in place of new ones."""
    for name in os.environ.pop(_OURS, "").split():
        os.environ.pop(name, None)


def _given_servers(*, needs_superuser: bool) -> dict[str, str]:
    given = {name: os.environ[name] for name in _SERVER_VARIABLES if os.environ.get(name)}
    for url, *others in (_DATABASE_VARIABLES, _BANK_VARIABLES):
        if url not in given:
            given = {name: value for name, value in given.items() if name not in others}
            continue
        optional = set() if needs_superuser else {"SUPERUSER_DATABASE_URL"}
        if missing := [name for name in others if name not in given and name not in optional]:
            raise DevError(f"{url} is set, so {' and '.join(missing)} must be, too.")
    return given


def _servers(home: Path) -> dict[str, Server]:
    """Those that always run, by the variable that replaces each."""
    return {
        "DATABASE_URL": Postgres(home / "postgres"),
        "REDIS_URL": Valkey(home / "valkey"),
        "KAFKA_BOOTSTRAP_SERVERS": Broker(home / "broker"),
    }


def _bank(home: Path, keys: Mapping[str, str], *, callback_url: str = "") -> SandboxBank:
    return SandboxBank(
        home / "bank",
        api_key=keys["BANK_API_KEY"],
        secrets=[keys["BANK_WEBHOOK_SECRETS"]],
        token=keys["SANDBOX_BANK_TOKEN"],
        callback_url=callback_url,
    )


def _variables(server: Server, keys: Mapping[str, str]) -> dict[str, str]:
    match server:
        case Postgres():
            return {
                "DATABASE_URL": server.url_for(_APPLICATION, keys[_APPLICATION], database=_DATABASE),
                "MIGRATION_DATABASE_URL": server.url_for(_OWNER, keys[_OWNER], database=_DATABASE),
                "SUPERUSER_DATABASE_URL": server.url,
            }
        case Valkey():
            return {"REDIS_URL": server.url}
        case SandboxBank():
            return {"BANK_URL": server.url, **{name: keys[name] for name in _BANK_KEYS}}
        case _:
            return {"KAFKA_BOOTSTRAP_SERVERS": server.url}


def _keys(home: Path) -> dict[str, str]:
    """Passwords of the roles, Django's key and the bank's: made once per home, so that sign-ins outlive a restart."""
    file = home / "keys.json"
    kept: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    names = (_APPLICATION, _OWNER, "SECRET_KEY", *_BANK_KEYS)
    keys = {name: kept.get(name) or secrets.token_urlsafe(36) for name in names}
    if keys != kept:
        write_private(file, json.dumps(keys))
    return keys
