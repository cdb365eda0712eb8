"""Child processes: they die with us, are stopped within a bound, and are found again when they outlived us.

Signals are remembered, not raised: an exception between the fork and its bookkeeping would lose a child. Who
waits for something to come up does so in `wait_until`, and that is where a requested stop surfaces.
"""

import functools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil

from wallet_project.dev import console
from wallet_project.dev.root import Account

MARK = "WALLET_DEV_HOME"
"""What we start, and so its children too, carries this variable: the directory that it was started for."""

_POLL_SECONDS = 0.05


class DevError(Exception):
    """Something the developer has to know: shown as a message, without a traceback."""


class Stopped(Exception):
    """Ctrl-C, SIGTERM or SIGHUP asked us to stop."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.signal = number


_requested: list[signal.Signals] = []


def listen_for_stop() -> None:
    """From now on the three signals are noted, and the next wait raises `Stopped`."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue  # nohup: somebody wants this to outlive the terminal.
        signal.signal(number, lambda received, _frame: _requested.append(signal.Signals(received)))


def wait_until(condition: Callable[[], bool], *, seconds: float = float("inf")) -> bool:
    """Whether `condition` came true within `seconds`.

    Raises:
        Stopped: a stop was requested meanwhile.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if _requested:
            raise Stopped(_requested[0])
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


class Child:
    """One child process, in a session of its own: Ctrl-C reaches us alone, and we decide on the order."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        name: str,
        environment: Mapping[str, str],
        cwd: Path,
        log: IO[bytes] | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        account: Account | None = None,
    ) -> None:
        """Start it, as `account` if given. Its output goes into `log`, or to the terminal behind its name."""
        self.name = name
        self._stop_signal = stop_signal
        self.popen = subprocess.Popen(
            dying_with_us(command, stop_signal),
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=log or subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **(account.popen_arguments() if account else {}),
        )
        self._output = console.follow(self.popen.stdout, name=name) if self.popen.stdout else None

    @property
    def exit_code(self) -> int | None:
        return self.popen.poll()

    def run_to_end(self) -> int:
        """The exit code of a child that ends by itself, after its last line was printed."""
        try:
            wait_until(lambda: self.exit_code is not None)
        finally:
            self.stop()
        if self._output:
            self._output.join(timeout=1)  # seconds: a grandchild may hold the pipe open
        return self.popen.returncode

    def ask_to_stop(self) -> None:
        if self.exit_code is None:
            self.popen.send_signal(self._stop_signal)

    def stop(self, *, seconds: float = 10) -> None:
        """Ask it, wait for it, and kill it with its children if that took too long."""
        self.ask_to_stop()
        try:
            self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            console.say(f"{self.name} did not stop within {seconds:.0f} s and is killed")
            os.killpg(self.popen.pid, signal.SIGKILL)
            self.popen.wait()


def dying_with_us(command: Sequence[str], number: signal.Signals) -> list[str]:
    """The command, started so that the kernel sends it this signal when we die, even by kill -9.

    Only Linux can do this, and it is a help, not a promise: the next start looks for leftovers all the same. What
    counts is the death of the thread that started it, so children are started from the main thread only.
    """
    setpriv = _setpriv()
    return [setpriv, "--pdeathsig", number.name.removeprefix("SIG"), "--", *command] if setpriv else list(command)


@functools.cache
def _setpriv() -> str | None:
    """The program of util-linux, if it is one that can do this."""
    program = shutil.which("setpriv")
    if program is None:
        return None
    manual = subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout
    return program if "--pdeathsig" in manual else None


def marked_processes(home: Path) -> list[psutil.Process]:
    """All living processes that were started for `home`, ourselves excepted."""
    return _find(lambda process: process.environ().get(MARK) == str(home))


def processes_in(directory: Path, *, program: str) -> list[psutil.Process]:
    """All living processes of `program` that work in `directory`.

    This is how a server is known. A pid file may be stale and its number somebody else's by now; and servers
    write their title over their environment, so they would lose a mark.
    """
    return _find(lambda process: process.name() == program and process.cwd() == str(directory.resolve()))


def stop_processes(processes: list[psutil.Process], number: signal.Signals, *, seconds: float = 20) -> None:
    """Stop processes that are not our children: ask with this signal, wait, kill."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=seconds)


def _find(wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # gone meanwhile, or not ours to ask
            if process.pid != os.getpid() and wanted(process):
                found.append(process)
    return found
