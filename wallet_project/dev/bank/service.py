"""The bank over HTTP: a thread per connection, connections kept open."""

import json
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from wallet_project.dev.bank import control, faults
from wallet_project.dev.bank.protocol import Answer, Bank, Request

_MAX_BODY = 64 * 1024  # bytes
_IDLE_SECONDS = 120
_LAST_ANSWERS_SECONDS = 5.0


class Service(ThreadingHTTPServer):
    """Serves until it is stopped."""

    daemon_threads = True
    block_on_close = False  # Kept connections would hold it up for two minutes; `stop` waits for those that work.
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], *, bank: Bank, token: str) -> None:
        """
        Args:
            token: opens `/sandbox`.
        """
        super().__init__(address, Handler)
        self.bank = bank
        self.token = token
        self.stopping = False
        self._working = 0
        self._changed = threading.Condition()

    def answer(self, request: Request) -> Answer:
        """The answer to a request, or the fault to be committed in its stead."""
        if request.path.startswith("/sandbox"):
            return control.answer(self.bank, request, token=self.token)
        return self.bank.answer(request)

    def begin(self) -> None:
        """A request has come in."""
        with self._changed:
            self._working += 1

    def end(self) -> None:
        """It has been answered."""
        with self._changed:
            self._working -= 1
            self._changed.notify_all()

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, and say nothing of it before: a reset would come as a polite end."""
        self.close_request(request)

    def stop(self) -> None:
        """Take no more; return when what was taken is answered. Not to be called by the thread that serves."""
        self.stopping = True
        self.shutdown()
        self.server_close()
        deadline = time.monotonic() + _LAST_ANSWERS_SECONDS
        with self._changed:
            while self._working and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Service
    protocol_version = "HTTP/1.1"
    server_version = "SandboxBank"
    disable_nagle_algorithm = True
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        self.server.begin()
        try:
            # Whoever asked may have gone meanwhile.
            with suppress(ConnectionError):
                self._answer()
        finally:
            self.server.end()

    def _answer(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > _MAX_BODY:
            self.close_connection = True
            self._write(Answer(status=413, body={"reason": "The body is too large."}))
            return
        url = urlsplit(self.path)
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        request = Request(
            method=self.command,
            path=url.path,
            query=dict(parse_qsl(url.query)),
            token=token if scheme == "Bearer" else "",
            body=self.rfile.read(int(length)),
        )
        answer = self.server.answer(request)
        if answer.fault is None:
            self._write(answer)
        else:
            self.log_message("%s %s: %s", self.command, url.path, answer.fault)
            faults.commit(answer.fault, self, answer.body, stopping=lambda: self.server.stopping)

    def _write(self, answer: Answer) -> None:
        body = json.dumps(answer.body, ensure_ascii=False).encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.server.stopping:
            self.close_connection = True
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
