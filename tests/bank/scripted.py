"""A server that writes on its socket what a test says, to the byte: what no bank should answer."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

Script = Callable[[socket.socket], None]


class Scripted:
    """What was asked of it, and by how many connections."""

    def __init__(self, listener: socket.socket, script: Script, tls: ssl.SSLContext | None) -> None:
        self.listener = listener
        self.script = script
        self.tls = tls
        self.requests: list[bytes] = []
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.listener.getsockname()[1]}"

    def serve(self) -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                connection, _ = self.listener.accept()
                self.connections += 1
                threading.Thread(target=self._converse, args=[connection], daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), self._encrypted(connection) as connection:
            while request := _read_request(connection):
                self.requests.append(request)
                self.script(connection)

    def _encrypted(self, connection: socket.socket) -> socket.socket:
        return self.tls.wrap_socket(connection, server_side=True) if self.tls else connection


@contextmanager
def scripted(script: Script, *, tls: ssl.SSLContext | None = None) -> Iterator[Scripted]:
    """A server that runs the script after every request."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Scripted(listener, script, tls)
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        yield server
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # which wakes the thread
    thread.join(5)


def answer(body: bytes, *, status: str = "200 OK", headers: Sequence[str] = ()) -> Script:
    """A whole answer, after which the connection stays open."""
    head = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
    return lambda connection: connection.sendall("\r\n".join([*head, "", ""]).encode() + body)


def raw(data: bytes) -> Script:
    """These bytes, and the end of the connection."""

    def write(connection: socket.socket) -> None:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_RDWR)

    return write


def dripping(before: bytes, drop: bytes, *, pause: float = 0.02) -> Script:
    """A beginning, and then drops of it for as long as somebody listens."""

    def write(connection: socket.socket) -> None:
        connection.sendall(before)
        while True:
            connection.sendall(drop)
            time.sleep(pause)

    return write


def _read_request(connection: socket.socket) -> bytes:
    """A whole request; empty if the other side has gone."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (part := connection.recv(65_536)):
            return b""
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    length = int(lengths[0].partition(b":")[2]) if lengths else 0
    while len(body) < length:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body
