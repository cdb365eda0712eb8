"""Ids in paths. What is no id is no address either, so it answers 404."""

from uuid import UUID

from wallet_project.kernel.fields import MAX_ID


class NumberConverter:
    """An account's number in plain ASCII digits, written in one way only."""

    regex = "[1-9][0-9]{0,18}"

    def to_python(self, value: str) -> int:
        number = int(value)
        if number > MAX_ID:
            raise ValueError(value)
        return number

    def to_url(self, value: int) -> str:
        return str(value)


class UUIDConverter:
    """A transaction's id; unlike Django's own converter it also takes capitals, as RFC 9562 asks of readers."""

    regex = "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"

    def to_python(self, value: str) -> UUID:
        return UUID(value)

    def to_url(self, value: UUID) -> str:
        return str(value)
