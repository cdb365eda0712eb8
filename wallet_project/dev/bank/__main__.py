"""`python -m wallet_project.dev.bank --home DIRECTORY --port PORT`: the sandbox bank, until SIGTERM.

Environment variables, since a command line is for everybody to read:

    BANK_API_KEY            who may ask for payments
    BANK_WEBHOOK_SECRETS    comma-separated; the first signs the notices
    BANK_CALLBACK_URL       where notices go; empty: to where the control API says
    SANDBOX_BANK_TOKEN      who may use the control API
    SANDBOX_BANK_DELAY      seconds until a payment is settled
"""

import argparse
import fcntl
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from wallet_project.dev.bank.book import Book
from wallet_project.dev.bank.protocol import Bank
from wallet_project.dev.bank.service import Service
from wallet_project.dev.bank.teller import Teller

_HOST = "127.0.0.1"
_DEFAULT_DELAY = "0.5"
_POLL_SECONDS = 0.05  # how soon the end of serving is noticed


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="bank")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args(arguments)
    with (options.home / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another process works on this book.", file=sys.stderr)
            return 1
        _serve(options.home / "book.sqlite", port=options.port)
    return 0


def _serve(file: Path, *, port: int) -> None:
    told_to_stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: told_to_stop.set())
    delay = float(os.environ.get("SANDBOX_BANK_DELAY") or _DEFAULT_DELAY)
    secret = os.environ["BANK_WEBHOOK_SECRETS"].split(",")[0]
    book = Book(file)
    if url := os.environ.get("BANK_CALLBACK_URL"):
        book.tell("callback", url)
    teller = Teller(book, secret=secret, delay=delay)
    bank = Bank(book=book, teller=teller, api_key=os.environ["BANK_API_KEY"], delay=delay)
    service = Service((_HOST, port), bank=bank, token=os.environ["SANDBOX_BANK_TOKEN"])
    teller.start()
    threading.Thread(target=service.serve_forever, args=[_POLL_SECONDS], name="service", daemon=True).start()
    told_to_stop.wait()
    service.stop()
    teller.stop()
    book.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
