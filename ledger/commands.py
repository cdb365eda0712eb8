"""What can be asked of the book, and what it answers: plain values, no rows."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from accounts.models import Account
from wallet_project.kernel.errors import DomainError


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One entry to be made.

    Args:
        account_id: the account, or the drawn shard of a system family.
        amount: minor units; negative debits the account, positive credits it.
        owner_id: who must own the account; for anybody else it does not exist. None: whoever.
        kind: what kind of account it must be; a wallet is never a shard.
    """

    account_id: int
    amount: int
    owner_id: int | None = None
    kind: str = Account.Kind.WALLET


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyEvent:
    """Which event a command leaves in the outbox; ids are wallets, None is the outside.

    `facts` are more keys of the payload, in API names: the hold or the order that the money belongs to.
    """

    topic: str
    key_account_id: int
    from_account_id: int | None
    to_account_id: int | None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One journal transaction to be made.

    Args:
        initiator_id: whose key it is.
        key: the idempotency key, 1 to 64 characters.
        fingerprint: of the parsed command; see `fingerprint_of`.
        type: a `JournalTransaction.Type`.
        legs: two or more, none zero, summing to zero.
        event: what to tell the world; None only for a consolidation.
        stamp: the initiator's sign-in stamp, checked after the locks; None for what the service does by itself.
        reverses_id: the transaction that this one reverses.
        continues_id: the opening whose money on hold this one spends or releases.
        payee_id: the wallet that the money is meant for though no leg touches it yet. It must be another one, open, and
            in the same currency; it is not locked.

    Raises:
        ValueError: the legs cannot balance, whatever the accounts: a fault of the caller's code.
    """

    initiator_id: int
    key: str
    fingerprint: bytes
    type: str
    legs: tuple[Leg, ...]
    event: MoneyEvent | None
    stamp: str | None = None
    reference: str = ""
    metadata: Mapping[str, Any] | None = None
    reverses_id: UUID | None = None
    continues_id: UUID | None = None
    payee_id: int | None = None
    transaction_id: UUID | None = None

    def __post_init__(self) -> None:
        amounts = [leg.amount for leg in self.legs]
        if len(amounts) < 2 or 0 in amounts or sum(amounts) != 0:
            raise ValueError(f"legs of {self.type} {self.key} do not balance: {amounts}")

    @property
    def amount(self) -> int:
        """What moves, in minor units: the sum of the credits."""
        return sum(leg.amount for leg in self.legs if leg.amount > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """The command's transaction is in the book, now or (`replayed`) since an earlier call with the same key.

    `balances` are the accounts' balances after the command's own entries, in minor units; empty for a replay.
    """

    transaction_id: UUID
    created_at: datetime
    replayed: bool
    balances: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The command left nothing behind, its key included."""

    error: DomainError


Outcome = Posted | Refused


def fingerprint_of(command: str, parameters: Mapping[str, Any]) -> bytes:
    """SHA-256 of a parsed command, so that neither key order, white space nor escapes of its JSON matter.

    Args:
        command: its name, with the ids of its path where it has some.
        parameters: its body as parsed; a null is the same as an absent field.
    """
    present = {name: value for name, value in parameters.items() if value is not None}
    canonical = json.dumps([command, present], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).digest()
