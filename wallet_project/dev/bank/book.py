"""The bank's own book, in SQLite: a kill -9 loses nothing that was answered, and a restart goes on.

Amounts are integers in minor units; times are seconds since 1970.
"""

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_SCHEMA = """
    PRAGMA journal_mode = WAL;
    PRAGMA foreign_keys = ON;
    CREATE TABLE IF NOT EXISTS payment (
        reference TEXT PRIMARY KEY,
        direction TEXT NOT NULL CHECK (direction IN ('IN', 'OUT')),
        amount INTEGER NOT NULL CHECK (typeof(amount) = 'integer' AND amount > 0),
        currency TEXT NOT NULL,
        destination TEXT,
        description TEXT NOT NULL,
        status TEXT NOT NULL CHECK (status IN ('ACCEPTED', 'SETTLED', 'REFUSED')),
        reason TEXT,
        plan TEXT NOT NULL,  -- the words for what is to become of it
        tries INTEGER NOT NULL,  -- how often it was submitted
        updated_at REAL NOT NULL
    );
    CREATE TABLE IF NOT EXISTS returned (
        number INTEGER PRIMARY KEY,
        return_id TEXT NOT NULL UNIQUE,
        reference TEXT NOT NULL REFERENCES payment,
        amount INTEGER NOT NULL CHECK (typeof(amount) = 'integer' AND amount > 0)
    );
    CREATE TABLE IF NOT EXISTS step (  -- what is to happen to a payment, and when
        number INTEGER PRIMARY KEY,
        reference TEXT NOT NULL REFERENCES payment,
        action TEXT NOT NULL,
        amount INTEGER,
        due_at REAL NOT NULL
    );
    CREATE TABLE IF NOT EXISTS notice (
        number INTEGER PRIMARY KEY,
        notice_id TEXT NOT NULL UNIQUE,
        reference TEXT NOT NULL REFERENCES payment,
        event TEXT NOT NULL,
        body TEXT NOT NULL,
        due_at REAL NOT NULL,
        behind INTEGER REFERENCES notice,  -- not sent before that one was taken
        copies INTEGER NOT NULL,  -- how often it has still to be taken
        attempts INTEGER NOT NULL DEFAULT 0,
        answer TEXT  -- to the last attempt
    );
    CREATE TABLE IF NOT EXISTS request (
        number INTEGER PRIMARY KEY,
        received_at REAL NOT NULL,
        method TEXT NOT NULL,
        path TEXT NOT NULL,
        body TEXT NOT NULL
    );
    CREATE TABLE IF NOT EXISTS told (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE VIEW IF NOT EXISTS sendable AS  -- notices that only time keeps from being sent
        SELECT * FROM notice WHERE copies > 0 AND NOT EXISTS (
            SELECT 1 FROM notice AS first WHERE first.number = notice.behind AND first.copies > 0
        );
    CREATE INDEX IF NOT EXISTS step_due ON step (due_at);
    CREATE INDEX IF NOT EXISTS notice_due ON notice (due_at) WHERE copies > 0;
"""

Row = sqlite3.Row
Connection = sqlite3.Connection


class Book:
    """One connection, used by one thread at a time."""

    def __init__(self, file: Path) -> None:
        """
        Args:
            file: where it is kept; made if it is not there.
        """
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        self._connection.row_factory = sqlite3.Row
        self._connection.executescript(_SCHEMA)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Everything in the block, or nothing; the thread that is in it must not ask for another."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """What a query finds."""
        with self.transaction() as connection:
            return [dict(row) for row in connection.execute(query, values)]

    def payment(self, reference: str) -> dict[str, Any] | None:
        """A payment as the bank tells of it."""
        with self.transaction() as connection:
            row = connection.execute("SELECT * FROM payment WHERE reference = ?", [reference]).fetchone()
            return row and as_told(connection, row)

    def payments(self) -> list[dict[str, Any]]:
        """All of them, as the bank tells of them."""
        with self.transaction() as connection:
            rows = connection.execute("SELECT * FROM payment ORDER BY rowid").fetchall()
            return [as_told(connection, row) for row in rows]

    def note_request(self, *, method: str, path: str, body: bytes) -> None:
        """Remember a request, whatever becomes of it."""
        with self.transaction() as connection:
            columns = {"received_at": time.time(), "method": method, "path": path}
            insert(connection, "request", {**columns, "body": body.decode(errors="replace")})

    def tell(self, name: str, value: str | None) -> None:
        """Remember what the bank was told; None forgets it."""
        with self.transaction() as connection:
            connection.execute("DELETE FROM told WHERE name = ?", [name])
            if value is not None:
                insert(connection, "told", {"name": name, "value": value})

    def told(self, name: str) -> str | None:
        """What the bank was told of this."""
        found = self.rows("SELECT value FROM told WHERE name = ?", [name])
        return found[0]["value"] if found else None


def insert(connection: Connection, table: str, columns: dict[str, Any]) -> int:
    """Add a row; its number."""
    marks = ", ".join("?" * len(columns))
    names = ", ".join(columns)
    cursor = connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(columns.values()))  # noqa: S608
    return cursor.lastrowid or 0


def as_told(connection: Connection, payment: Row) -> dict[str, Any]:
    """A row of `payment` as the bank's answers have it."""
    returns = connection.execute(
        "SELECT return_id, amount FROM returned WHERE reference = ? ORDER BY number", [payment["reference"]]
    )
    same = ("reference", "direction", "amount", "currency", "status", "reason")
    return {
        **{name: payment[name] for name in same},
        "returns": [{"returnId": row["return_id"], "amount": row["amount"]} for row in returns],
        "updatedAt": instant(payment["updated_at"]),
    }


def instant(seconds: float) -> str:
    """RFC 3339, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
