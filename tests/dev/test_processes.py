"""Child processes are stopped within a bound, found again, and do not outlive us."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from wallet_project.dev import processes
from wallet_project.dev.processes import Child, wait_until

_PATIENCE = 10  # seconds


def _child(script: str, *, directory: Path, name: str = "child") -> Child:
    environment = {processes.MARK: str(directory)}
    return Child([sys.executable, "-c", script], name=name, environment=environment, cwd=directory)


def test_a_child_that_ignores_the_request_is_killed_with_its_children(tmp_path: Path) -> None:
    stubborn = _child(
        "import signal, subprocess, pathlib\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "grandchild = subprocess.Popen(['sleep', '60'])\n"
        "pathlib.Path('grandchild').write_text(str(grandchild.pid))\n"
        "pathlib.Path('ready').touch()\n"
        "signal.pause()\n",
        directory=tmp_path,
    )
    assert wait_until((tmp_path / "ready").exists, seconds=_PATIENCE)
    grandchild = int((tmp_path / "grandchild").read_text())

    stubborn.stop(seconds=0.2)

    assert stubborn.exit_code == -signal.SIGKILL
    assert wait_until(lambda: not _lives(grandchild), seconds=_PATIENCE)


def test_output_is_printed_behind_the_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    child = _child("print('one'); print('two'); raise SystemExit(3)", directory=tmp_path, name="talker")

    assert child.run_to_end() == 3
    assert capsys.readouterr().out == "talker  | one\ntalker  | two\n"


def test_leftovers_are_known_by_their_mark_and_by_their_directory(tmp_path: Path) -> None:
    child = _child("import signal; signal.pause()", directory=tmp_path)
    try:
        assert wait_until(lambda: bool(processes.marked_processes(tmp_path)), seconds=_PATIENCE)
        [found] = processes.marked_processes(tmp_path)
        assert found.pid == child.popen.pid
        assert processes.processes_in(tmp_path, program=found.name()) == [found]
        assert not processes.processes_in(tmp_path, program="postgres")
        assert not processes.marked_processes(tmp_path.parent)

        processes.stop_processes([found], signal.SIGTERM)
        assert not processes.marked_processes(tmp_path)
    finally:
        child.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux's kernel tells children of their parent's death")
def test_children_die_with_a_killed_supervisor(tmp_path: Path) -> None:
    supervisor = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, signal, pathlib\n"
            "from wallet_project.dev.processes import Child\n"
            "environment = {'PATH': os.environ['PATH']}\n"
            "child = Child(['sleep', '60'], name='child', environment=environment, cwd=pathlib.Path('/'))\n"
            f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(child.popen.pid))\n"
            f"pathlib.Path({str(tmp_path / 'ready')!r}).touch()\n"
            "signal.pause()\n",
        ]
    )
    assert wait_until((tmp_path / "ready").exists, seconds=_PATIENCE)
    child = int((tmp_path / "pid").read_text())
    assert wait_until(lambda: psutil.Process(child).name() == "sleep", seconds=_PATIENCE)

    supervisor.kill()
    supervisor.wait()

    assert wait_until(lambda: not _lives(child), seconds=_PATIENCE)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_next_wait(number: signal.Signals) -> None:
    script = (
        "import os, signal\n"
        "from wallet_project.dev.processes import Stopped, listen_for_stop, wait_until\n"
        # Whoever runs the suite under nohup has its children ignore SIGHUP.
        f"signal.signal({number}, signal.SIG_DFL)\n"
        "listen_for_stop()\n"
        f"os.kill(os.getpid(), {number})\n"
        "try:\n    wait_until(lambda: False)\n"
        "except Stopped as stop:\n    print(stop)\n"
    )
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert finished.stdout == f"{number.name}\n"


def _lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
