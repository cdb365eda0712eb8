"""Does what is due, and sends notices to the wallet, each until it is taken (2xx), however long the wallet is away."""

import hashlib
import hmac
import http.client
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from wallet_project.dev.bank import course
from wallet_project.dev.bank.book import Book

_ANSWER_SECONDS = 5.0
_RETRY_SECONDS = 0.1  # doubled with each attempt
_RETRY_MOST_SECONDS = 5.0
_SENDERS = 8
_LOOK_SECONDS = 1.0
_LEAST_PAUSE_SECONDS = 0.005


def sign(body: bytes, *, timestamp: int, secret: str) -> str:
    """The header `Bank-Signature`."""
    message = f"{timestamp}.".encode() + body
    return "v1=" + hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


class Teller(threading.Thread):
    """One thread that looks for what is due, and a few that send."""

    def __init__(self, book: Book, *, secret: str, delay: float) -> None:
        """
        Args:
            secret: signs the notices.
            delay: seconds, as in `course.take`.
        """
        super().__init__(name="teller", daemon=True)
        self._book = book
        self._secret = secret
        self._delay = delay
        self._senders = ThreadPoolExecutor(_SENDERS, thread_name_prefix="sender")
        self._awake = threading.Event()
        self._stopping = False

    def wake(self) -> None:
        """There may be something to do."""
        self._awake.set()

    def stop(self) -> None:
        """End, after the notices that are being sent."""
        self._stopping = True
        self._awake.set()
        self.join()
        self._senders.shutdown(cancel_futures=True)

    def run(self) -> None:
        self._send_again()
        while not self._stopping:
            course.do_what_is_due(self._book, delay=self._delay)
            if url := self._book.told("callback"):
                for number, body in self._claim("due_at <= ?", time.time()):
                    self._senders.submit(self._send, number, body, url)
            self._awake.wait(self._seconds_until_due())
            self._awake.clear()

    def send_now(self, reference: str) -> None:
        """Try once to send the notices of a payment, due or not, before this returns."""
        if url := self._book.told("callback"):
            for number, body in self._claim("reference = ?", reference):
                self._send(number, body, url)

    def _send_again(self) -> None:
        """What an earlier process was about to send, or to try again, is due now."""
        with self._book.transaction() as connection:
            connection.execute("UPDATE notice SET due_at = ? WHERE copies > 0 AND attempts > 0", [time.time()])

    def _claim(self, condition: str, value: float | str) -> list[tuple[int, bytes]]:
        """Notices to be sent now. Each is due again later, for this process may be killed before it is sent."""
        with self._book.transaction() as connection:
            query = f"SELECT number, body FROM sendable WHERE {condition} ORDER BY due_at, number"  # noqa: S608  Ours.
            rows = connection.execute(query, [value]).fetchall()
            for row in rows:
                connection.execute(
                    "UPDATE notice SET attempts = attempts + 1, due_at = ? WHERE number = ?",
                    [time.time() + 2 * _ANSWER_SECONDS, row["number"]],
                )
        return [(row["number"], row["body"].encode()) for row in rows]

    def _send(self, number: int, body: bytes, url: str) -> None:
        answer = self._post(body, url)
        with self._book.transaction() as connection:
            if answer.startswith("2"):
                query = "UPDATE notice SET answer = ?, copies = copies - 1, due_at = ? WHERE number = ?"
                connection.execute(query, [answer, time.time(), number])
            else:
                attempts = connection.execute("SELECT attempts FROM notice WHERE number = ?", [number]).fetchone()[0]
                due_at = time.time() + min(_RETRY_SECONDS * 2 ** min(attempts, 10), _RETRY_MOST_SECONDS)
                query = "UPDATE notice SET answer = ?, due_at = ? WHERE number = ?"
                connection.execute(query, [answer, due_at, number])
        self.wake()

    def _post(self, body: bytes, url: str) -> str:
        """The status of the wallet's answer, or what went wrong."""
        parts = urlsplit(url)
        connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = connect(parts.hostname or "", parts.port, timeout=_ANSWER_SECONDS)
        timestamp = int(time.time())
        headers = {
            "Content-Type": "application/json",
            "Bank-Timestamp": str(timestamp),
            "Bank-Signature": sign(body, timestamp=timestamp, secret=self._secret),
        }
        try:
            connection.request("POST", parts.path, body, headers)
            return str(connection.getresponse().status)
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__
        finally:
            connection.close()

    def _seconds_until_due(self) -> float:
        """Until a step or a notice is due; a second at most, since nobody wakes us for what is told meanwhile."""
        due_at = "SELECT min(due_at) AS due_at FROM (SELECT due_at FROM step UNION ALL SELECT due_at FROM sendable)"
        [row] = self._book.rows(due_at)
        if row["due_at"] is None or not self._book.told("callback"):
            return _LOOK_SECONDS
        left: float = row["due_at"] - time.time()
        return min(max(left, _LEAST_PAUSE_SECONDS), _LOOK_SECONDS)
