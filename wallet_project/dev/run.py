"""`make run`: servers, web server, workers and beat; when one dies, or a stop is asked for, all stop."""

import fcntl
import http.client
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from celery import Celery

from wallet_project.dev import console, processes, root, stack
from wallet_project.dev.processes import Child, DevError, Stopped, wait_until
from wallet_project.dev.servers import HOST, port_is_free
from wallet_project.dev.stack import CHECKOUT, Stack

HOME = CHECKOUT / ".dev"
ENVIRONMENT_FILE = HOME / "env"
_BEAT_PID_FILE = HOME / "beat.pid"
_READY_SECONDS = 60
_CELERY = "celery --quiet -A wallet_project"
_CELERY_WORKERS = 3  # "worker", "relay" and "bank"

_READY = """
  READY

    API      http://{address}/v1
    admin    http://{address}/admin/
    logins   users an, binh, chi, shop; staff support, finance, finance2, admin; password of all: wallet-demo
    bank     {bank}

  Sign in, then list the wallets:

    TOKEN=$(curl -s http://{address}/v1/auth/token -H 'Content-Type: application/json' \\
      -d '{{"username": "an", "password": "wallet-demo"}}' | sed 's/.*"access": *"\\([^"]*\\)".*/\\1/')
    curl -s http://{address}/v1/accounts -H "Authorization: Bearer $TOKEN"

  For manage.py in another shell: set -a; . .dev/env       To stop: Ctrl-C
"""


def run() -> int:
    """Bring everything up, keep it up, take it down. The exit code is 0 if somebody asked for the end.

    Raises:
        DevError: something cannot start, or died.
    """
    port = _port()
    if os.environ.get("WALLET_ENV", "development") != "development":
        raise DevError("WALLET_ENV is set to something else; `make run` and its demo data are development.")
    processes.listen_for_stop()
    with sole_owner_of_home(), suppress(Stopped):
        stack.stop_leftovers(HOME)
        callback_url = f"http://{HOST}:{port}/v1/bank/callbacks"
        with (
            stack.running(HOME, wallet_env="development", callback_url=callback_url) as servers,
            _environment_file(servers),
        ):
            servers.make_roles()
            servers.manage("migrate", name="migrate")
            servers.manage("load_demo", name="demo")
            with _applications(servers, port=port) as applications:
                children = [*applications, *servers.children]
                _wait_for_readiness(children, port=port, broker=servers.environment["REDIS_URL"])
                console.show(_READY.format(address=f"{HOST}:{port}", bank=_bank(servers)))
                while True:
                    wait_until(lambda: False, seconds=1)
                    _check_alive(children)
    console.say("stopped")
    return 0


@contextmanager
def sole_owner_of_home() -> Iterator[None]:
    """Makes `.dev/` and locks it. The kernel drops the lock when this process ends, in whatever way.

    Raises:
        DevError: another process has it.
    """
    HOME.mkdir(exist_ok=True)
    HOME.chmod(root.OTHERS_MAY_PASS if os.geteuid() == 0 else 0o700)
    with (HOME / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise DevError(f"`make run` is at work in this checkout: process {lock.read()}.") from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _port() -> int:
    text = os.environ.get("PORT") or "8000"
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise DevError(f"PORT is {text!r}, which is not a port number.")
    if not port_is_free(int(text)):
        raise DevError(f"Port {text} is taken. Choose another: make run PORT=8001")
    return int(text)


@contextmanager
def _environment_file(servers: Stack) -> Iterator[None]:
    stack.write_environment(ENVIRONMENT_FILE, servers.environment)
    try:
        yield
    finally:
        ENVIRONMENT_FILE.unlink(missing_ok=True)


@contextmanager
def _applications(servers: Stack, *, port: int) -> Iterator[list[Child]]:
    """Web server, workers and beat; they stop side by side, and before the servers."""
    _BEAT_PID_FILE.unlink(missing_ok=True)
    environment = servers.child_environment()
    children: list[Child] = []
    try:
        for name, command in _commands(port).items():
            arguments = [sys.executable, "-m", *command.split()]
            children.append(Child(arguments, name=name, environment=environment, cwd=CHECKOUT))
        yield children
    finally:
        for child in children:
            child.ask_to_stop()
        for child in children:
            child.stop()
        processes.stop_processes(processes.marked_processes(HOME), signal.SIGKILL)


def _commands(port: int) -> dict[str, str]:
    return {
        "web": f"granian --interface wsgi --host {HOST} --port {port} --workers 2 --blocking-threads 8"
        " --no-ws --log-level error --workers-kill-timeout 5 --respawn-failed-workers wallet_project.wsgi:application",
        "worker": f"{_CELERY} worker --hostname worker@%h --concurrency 2 --loglevel WARNING",
        "relay": f"{_CELERY} worker --hostname relay@%h --queues outbox --concurrency 1 --loglevel WARNING",
        "bank": f"{_CELERY} worker --hostname bank@%h --queues bank --concurrency 4 --loglevel WARNING",
        "events": "manage consume_events",
        "beat": f"{_CELERY} beat --loglevel WARNING"
        f" --schedule .dev/beat-schedule --pidfile {_BEAT_PID_FILE.relative_to(CHECKOUT)}",
    }


def _wait_for_readiness(children: Sequence[Child], *, port: int, broker: str) -> None:
    def all_ready() -> bool:
        _check_alive(children)
        # Beat writes its file when it begins to work.
        return _web_answers(port) and _BEAT_PID_FILE.exists() and _workers_answer(broker)

    if not wait_until(all_ready, seconds=_READY_SECONDS):
        raise DevError(f"Not ready after {_READY_SECONDS} seconds, so everything is stopped.")


def _bank(servers: Stack) -> str:
    """What to say of the bank."""
    if servers.sandbox_bank is None:
        return servers.environment["BANK_URL"]
    return (
        f"a sandbox, {servers.sandbox_bank.url}, does what a withdrawal's destination says: sandbox:refuse,"
        "\n             sandbox:timeout, sandbox:return=40; more in docs/bank.md"
    )


def _web_answers(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _workers_answer(broker: str) -> bool:
    with Celery(broker=broker) as celery:
        answers = celery.control.broadcast("ping", reply=True, limit=_CELERY_WORKERS, timeout=1)
    return len(answers or []) >= _CELERY_WORKERS


def _check_alive(children: Sequence[Child]) -> None:
    for child in children:
        if child.exit_code is not None:
            raise DevError(
                f"{child.name} ended with exit code {child.exit_code}, so everything is stopped."
                " Its output stands above; a server's is in .dev/."
            )
