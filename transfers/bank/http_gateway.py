"""The gateway over HTTP (docs/bank.md): one request per call, on connections that are kept open.

What the client may not do by itself, it is kept from: it sends nothing twice, follows no redirect, undoes no
compression, and reads neither beyond its time nor beyond its size. Whatever is not the bank's own clear answer is
`NoAnswer`. Neither a body nor a header is ever logged, or put into the text of an error.
"""

import http.client
import io
import socket
import time
from collections.abc import Mapping
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

from transfers.bank import payments, signature
from transfers.bank.gateway import BankSettings, Instruction, NoAnswer, Notice, Payment, Refused, UnknownReference

_CONNECT_SECONDS = 3.0
_MAX_ANSWER = 64 * 1024  # bytes
_KEPT_CONNECTIONS = 8
# A connection that a firewall has dropped in silence is found out while it is idle, not by the next order.
_SOCKET_OPTIONS = [
    *HTTPConnection.default_socket_options,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}.items()
        if hasattr(socket, name)
    ),
]


class HTTPGateway:
    """A `BankGateway`."""

    def __init__(self, options: BankSettings) -> None:
        self._options = options
        self._pool = _pool(options.url)
        self._path = (urllib3.util.parse_url(options.url).path or "").rstrip("/")
        self._headers = {
            "Authorization": f"Bearer {options.api_key}",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "wallet",
        }

    def submit(self, instruction: Instruction) -> Payment:
        status, answer = self._call("PUT", instruction, body=payments.write_instruction(instruction))
        match status:
            case 200 | 201:
                return payments.read_payment(answer, of=instruction)
            case 422:
                raise Refused(payments.read_no(answer, of=instruction))
            case _:
                raise NoAnswer(f"The bank answered with status {status}.")

    def query(self, instruction: Instruction) -> Payment:
        status, answer = self._call("GET", instruction)
        match status:
            case 200:
                return payments.read_payment(answer, of=instruction)
            case 404:
                raise UnknownReference(payments.read_no(answer, of=instruction))
            case _:
                raise NoAnswer(f"The bank answered with status {status}.")

    def verify(self, *, headers: Mapping[str, str], body: bytes) -> Notice:
        options = self._options
        signature.check(headers, body, secrets=options.webhook_secrets, window_seconds=options.callback_window_seconds)
        return payments.read_notice(body)

    def _call(self, method: str, instruction: Instruction, *, body: bytes | None = None) -> tuple[int, bytes]:
        """The status and body of the one answer to the one request.

        Raises:
            NoAnswer: none came, in time and in full.
        """
        seconds = self._options.timeout_seconds
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        try:
            response = self._pool.urlopen(
                method,
                f"{self._path}/payments/{instruction.reference}",
                body=body,
                headers=headers,
                timeout=urllib3.Timeout(total=seconds, connect=min(_CONNECT_SECONDS, seconds)),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            try:
                answer = _read(response)
            finally:
                response.close()  # which leaves the connection open if the answer was read to its end
        except (HTTPError, OSError) as error:
            raise NoAnswer(f"The bank did not answer ({type(error).__name__}).") from error
        if len(answer) > _MAX_ANSWER:
            raise NoAnswer(f"The bank's answer is longer than {_MAX_ANSWER} bytes.")
        return response.status, answer


def _read(response: urllib3.BaseHTTPResponse) -> bytes:
    """The body, or as much of it as shows that it is too long."""
    # One read would not do: only the one that finds nothing more complains of a body that is too short.
    body = b""
    while len(body) <= _MAX_ANSWER and (part := response.read(_MAX_ANSWER + 1 - len(body))):
        body += part
    return body


class _UntilDeadline(io.RawIOBase):
    """Bytes of a socket, for as long as its timeout says, all in all.

    Left to itself, a socket grants its timeout to each packet anew: a byte every few seconds would hold us for hours.
    urllib3 has set the timeout to what is left of the whole call.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._bytes = sock.makefile("rb", buffering=0)
        self._deadline = time.monotonic() + (sock.gettimeout() or 0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        self._socket.settimeout(left)
        return self._bytes.readinto(buffer)

    def close(self) -> None:
        self._bytes.close()
        super().close()


class _Bounded:
    """A socket, as far as a response needs one."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_UntilDeadline(self._socket))


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(_Bounded(sock), *args, **kwargs)  # type: ignore[arg-type]


class _HTTPConnection(HTTPConnection):
    response_class = _Response


class _HTTPSConnection(HTTPSConnection):
    response_class = _Response


def _pool(url: str) -> urllib3.HTTPConnectionPool:
    pool = urllib3.connection_from_url(url, maxsize=_KEPT_CONNECTIONS, socket_options=_SOCKET_OPTIONS)
    pool.ConnectionCls = _HTTPSConnection if pool.scheme == "https" else _HTTPConnection
    return pool
