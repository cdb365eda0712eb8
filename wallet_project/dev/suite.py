"""`make test` and `make soak`: the suite on servers of its own, in a directory that is gone afterwards."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psycopg
from psycopg import conninfo, sql

from wallet_project.dev import processes, root, stack
from wallet_project.dev.processes import Stopped, wait_until
from wallet_project.dev.stack import CHECKOUT, Stack

_SOAK = ["-m", "race or chaos", "--timeout=3600"]


def test(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments; its exit code."""
    processes.listen_for_stop()
    home = Path(tempfile.mkdtemp(prefix="wallet-test-")).resolve()
    if os.geteuid() == 0:
        home.chmod(root.OTHERS_MAY_PASS)
    try:
        with stack.running(home, wallet_env="test", needs_superuser=True) as servers:
            servers.make_roles()
            _allow_test_databases(servers)
            return _pytest(arguments, servers)
    except Stopped as stop:
        return 128 + stop.signal  # as a shell would report it
    finally:
        root.remove_home(home)


def soak(arguments: Sequence[str]) -> int:
    """The races and the chaos alone, with all their rounds."""
    os.environ["WALLET_SOAK"] = "1"
    return test([*_SOAK, *arguments])


def _allow_test_databases(servers: Stack) -> None:
    """pytest-django makes its databases as the owner, who otherwise may not."""
    owner = conninfo.conninfo_to_dict(servers.environment["MIGRATION_DATABASE_URL"])["user"]
    with psycopg.connect(servers.environment["SUPERUSER_DATABASE_URL"], autocommit=True) as connection:
        connection.execute(sql.SQL("ALTER ROLE {} CREATEDB").format(sql.Identifier(str(owner))))


def _pytest(arguments: Sequence[str], servers: Stack) -> int:
    # No session of its own as other children have: pytest's debugger needs the terminal.
    pytest = subprocess.Popen(
        processes.dying_with_us([sys.executable, "-m", "pytest", *arguments], signal.SIGTERM),
        env=servers.child_environment(),
        cwd=CHECKOUT,
    )
    try:
        wait_until(lambda: pytest.poll() is not None)
    except Stopped as stop:
        _interrupt(pytest, stop.signal)
    finally:
        # Processes that tests started and an interrupted pytest did not stop.
        processes.stop_processes(processes.marked_processes(servers.home), signal.SIGKILL)
    code = pytest.wait()
    return code if code >= 0 else 128 - code


def _interrupt(pytest: "subprocess.Popen[bytes]", received: signal.Signals) -> None:
    """Let pytest tidy up and print its summary, then make sure.

    Ctrl-C in a terminal has reached it too, and a second one would break into its tidying up.
    """
    if received is not signal.SIGINT:
        pytest.send_signal(signal.SIGINT)
    for harder in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        try:
            pytest.wait(5)
        except subprocess.TimeoutExpired:
            pytest.send_signal(harder)
