"""The terminal: what several processes print, each line behind the name of its process."""

import os
import sys
import threading
from typing import IO

_WIDTH = 8
_COLOURS = {"web": 36, "worker": 32, "relay": 33, "beat": 35}
_lock = threading.Lock()


def show(text: str) -> None:
    """Print. A terminal that went away must not keep the servers from being stopped, so that is no error."""
    with _lock:
        try:
            print(text, flush=True)
        except OSError:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115  It stands in for stdout until we end.


def say(text: str, *, name: str = "dev") -> None:
    """Print one line of a process."""
    prefix = f"{name:<{_WIDTH}}| "
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        prefix = f"\x1b[{_COLOURS.get(name, 90)}m{prefix}\x1b[0m"
    show(prefix + text)


def follow(pipe: IO[bytes], *, name: str) -> threading.Thread:
    """Print the lines that arrive in `pipe`, blank ones left out, until its other end is closed."""

    def copy() -> None:
        with pipe:
            for line in pipe:
                if text := line.decode(errors="replace").rstrip():
                    say(text, name=name)

    thread = threading.Thread(target=copy, name=f"output of {name}", daemon=True)
    thread.start()
    return thread
