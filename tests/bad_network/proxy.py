"""A network that loses things: a TCP proxy that cuts connections before, during and after the service has worked."""

import contextlib
import random
import socket
import threading
from collections import Counter
from collections.abc import Iterator

# What happens to a connection, and how often of a hundred.
WEIGHTS = {
    "pass": 70,
    "refuse": 5,
    "lose the request": 7,
    "lose half the request": 3,
    "lose the answer": 12,
    "cut it": 3,
}


class BadNetwork:
    """Forwards to a service, as long as it feels like it. One request per connection."""

    def __init__(self, *, host: str, port: int, seed: int) -> None:
        self._target = (host, port)
        self._random = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.faults: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @contextlib.contextmanager
    def running(self) -> Iterator["BadNetwork"]:
        """Accepts connections until the end of the block."""
        accepting = threading.Thread(target=self._accept, daemon=True)
        accepting.start()
        try:
            yield self
        finally:
            # Closing alone does not wake a thread that waits in accept().
            self._listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                phone, _ = self._listener.accept()
            except OSError:
                return
            (fault,) = self._random.choices(list(WEIGHTS), list(WEIGHTS.values()))
            self.faults[fault] += 1
            threading.Thread(target=self._serve, args=(phone, fault), daemon=True).start()

    def _serve(self, phone: socket.socket, fault: str) -> None:
        with contextlib.suppress(OSError), phone:
            if fault == "refuse":
                return
            phone.settimeout(30)
            request = _read_message(phone)
            if fault == "lose the request":
                return
            with socket.create_connection(self._target, timeout=30) as service:
                if fault == "lose half the request":
                    service.sendall(request[: len(request) // 2])
                    return
                service.sendall(request)
                answer = _read_message(service)
            if fault == "pass":
                phone.sendall(answer)
            elif fault == "cut it":
                phone.sendall(answer[: len(answer) // 2])


def _read_message(connection: socket.socket) -> bytes:
    """One HTTP/1.1 message with a Content-Length, or what came of it."""
    received = b""
    while b"\r\n\r\n" not in received:
        chunk = connection.recv(65536)
        if not chunk:
            return received
        received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
    length = int(headers.get(b"content-length", b"0"))
    while len(body) < length:
        chunk = connection.recv(65536)
        if not chunk:
            break
        body += chunk
    return head + b"\r\n\r\n" + body
