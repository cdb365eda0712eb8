"""The parts of posting: what is read after the locks, who decides, and the one statement that writes.

`ledger.services.post` puts them together and explains the order.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

from django.db import connection
from psycopg.types.json import Jsonb

from accounts.errors import AccountNotFound
from accounts.models import Account
from accounts.services import stamp_of
from ledger.commands import Command, Leg, Outcome, Posted, Refused
from ledger.errors import (
    CONSTRAINTS,
    AccountClosed,
    AccountFrozen,
    BalanceLimitExceeded,
    CurrencyMismatch,
    InsufficientFunds,
    SameAccount,
)
from ledger.keys import LOOK_UP, Key, KnownKey, known_keys, look_up_parameters
from ledger.limits import LIMITS, Allowance, allowances, limited_accounts
from ledger.models import JournalTransaction
from outbox.services import EVENT_NAMESPACE, Event, event_insert
from wallet_project.kernel import clock
from wallet_project.kernel.db import translated
from wallet_project.kernel.errors import DomainError, TokenInvalid
from wallet_project.kernel.money import MAX_AMOUNT

# Should the clock be set back in between, the beginning of the database transaction is as far back as an entry may go.
CLOCK = "SELECT greatest(clock_timestamp(), transaction_timestamp())"
INITIATORS = "SELECT id, is_active, password FROM wallet_user WHERE id = ANY(%s)"
FROZEN = """
    SELECT f.account_id FROM account_freeze f
     WHERE f.account_id = ANY(%s) AND NOT EXISTS (SELECT FROM account_thaw t WHERE t.freeze_id = f.id)
"""
PAYEES = "SELECT id, currency, status FROM account WHERE id = ANY(%s) AND kind = 'WALLET' AND parent_id IS NULL"
# In the order of the keys, so that two calls that share keys never wait for each other crosswise.
INSERT_JOURNAL = """
    INSERT INTO journal_transaction
           (id, initiator_id, idempotency_key, type, fingerprint, reverses_id, continues_id, reference, metadata,
            created_at)
    SELECT j.*, %s
      FROM unnest(%s::uuid[], %s::bigint[], %s::varchar[], %s::varchar[], %s::bytea[], %s::uuid[], %s::uuid[],
                  %s::varchar[], %s::jsonb[]) AS j
"""
INSERT_ENTRIES = """
    INSERT INTO ledger_entry (transaction_id, account_id, amount, created_at)
    SELECT e.*, %s FROM unnest(%s::uuid[], %s::bigint[], %s::bigint[]) AS e
    RETURNING transaction_id, account_id, balance_after
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payee:
    """A wallet that money is meant for, as it is now; nobody holds its lock."""

    currency: str
    status: str


@dataclass(slots=True, kw_only=True)
class Book:
    """What a decision rests on, read after the locks.

    `balances` and `allowances` run along with the commands accepted so far.
    """

    now: datetime
    accounts: Mapping[int, Account]
    known: dict[Key, KnownKey]
    stamps: Mapping[int, str]  # of the initiators who are active
    frozen: frozenset[int]
    balances: dict[int, int]
    payees: Mapping[int, Payee]
    allowances: Mapping[int, Allowance]  # of the wallets with a tier


def read_book(commands: Sequence[Command], accounts: Mapping[int, Account]) -> Book:
    """Read all that must be fresh, in one round trip: a new statement sees what was committed during the wait."""
    keys = {(command.initiator_id, command.key) for command in commands}
    initiators = sorted({command.initiator_id for command in commands if command.stamp is not None})
    families = sorted({id_ for account in accounts.values() for id_ in (account.pk, account.parent_id) if id_})
    payees = sorted({command.payee_id for command in commands if command.payee_id is not None})
    limited = limited_accounts(accounts.values())
    (clock_row,), known, users, frozen, *rest = _read(
        [
            (CLOCK, []),
            (LOOK_UP, look_up_parameters(keys)),
            (INITIATORS, [initiators]),
            (FROZEN, [families]),
            # What few commands need costs the others nothing.
            *([(PAYEES, [payees])] if payees else []),
            *([(LIMITS, [limited])] if limited else []),
        ]
    )
    last_entries = [account.last_entry_at for account in accounts.values() if account.last_entry_at]
    return Book(
        now=max([clock_row[0], *last_entries]),
        accounts=accounts,
        known=dict(known_keys(known)),
        stamps={id_: stamp_of(password) for id_, is_active, password in users if is_active},
        frozen=frozenset(row[0] for row in frozen),
        balances={account.pk: account.balance for account in accounts.values()},
        payees={id_: Payee(currency=currency, status=status) for id_, currency, status in (rest[0] if payees else [])},
        allowances=allowances(rest[-1]) if limited else {},
    )


def _read(statements: Sequence[tuple[str, list[Any]]]) -> list[list[tuple[Any, ...]]]:
    """The rows of several statements, in one round trip."""
    with connection.cursor() as cursor:
        cursor.execute(
            "; ".join(text for text, _ in statements), [value for _, values in statements for value in values]
        )
        results = [cursor.fetchall()]
        while cursor.nextset():
            results.append(cursor.fetchall())
    return results


def decide(command: Command, book: Book) -> Outcome | None:
    """The outcome of a command that need not, or must not, be posted; None for one that is to be posted.

    The order of the checks is the contract's: the same bad request always gets the same code.
    """
    try:
        _check_initiator(command, book)
        known = book.known.get((command.initiator_id, command.key))
        if known is not None:
            return _replayed(command, known)
        _check_accounts(command, book)
        _check_money(command, book)
    except DomainError as refusal:
        return Refused(error=refusal)
    return None


def _check_initiator(command: Command, book: Book) -> None:
    if command.stamp is not None and book.stamps.get(command.initiator_id) != command.stamp:
        raise TokenInvalid("The user is disabled or has changed the password; sign in again.")


def _replayed(command: Command, known: KnownKey) -> Posted:
    known.must_match(command.fingerprint)
    assert known.transaction_id is not None  # noqa: S101  Equal fingerprints are equal commands, and this one posts.
    return Posted(transaction_id=known.transaction_id, created_at=known.created_at, replayed=True, balances={})


def _check_accounts(command: Command, book: Book) -> None:
    # Those that somebody named; who named the system account that was drawn shall not learn that it is one.
    ids = [leg.account_id for leg in command.legs if leg.kind == Account.Kind.WALLET]
    ids += [] if command.payee_id is None else [command.payee_id]
    if len(set(ids)) < len(ids):
        raise SameAccount("The source and the destination are the same account.")
    for leg in command.legs:
        if not _exists_for(leg, book.accounts.get(leg.account_id)):
            raise AccountNotFound(f"There is no account {leg.account_id}.")
    if command.payee_id is not None and command.payee_id not in book.payees:
        raise AccountNotFound(f"There is no account {command.payee_id}.")
    parties: Mapping[int, Account | Payee] = {**book.payees, **book.accounts}
    for id_ in ids:
        if parties[id_].status == Account.Status.CLOSED:
            raise AccountClosed(f"Account {id_} is closed.")
    if command.type not in JournalTransaction.MOVES_FROZEN:
        for leg in command.legs:
            account = book.accounts[leg.account_id]
            if leg.amount < 0 and not book.frozen.isdisjoint((account.pk, account.parent_id)):
                raise AccountFrozen(f"Account {leg.account_id} is frozen.")


def _exists_for(leg: Leg, account: Account | None) -> bool:
    """A wallet is found by its own number; a system account only as the shard that was drawn."""
    if account is None or account.kind != leg.kind or leg.owner_id not in (None, account.owner_id):
        return False
    return (account.parent_id is None) == (account.kind == Account.Kind.WALLET)


def _check_money(command: Command, book: Book) -> None:
    sums: dict[str, int] = {}
    for leg in command.legs:
        currency = book.accounts[leg.account_id].currency
        sums[currency] = sums.get(currency, 0) + leg.amount
    if any(sums.values()) or (command.payee_id is not None and book.payees[command.payee_id].currency not in sums):
        raise CurrencyMismatch("The accounts' currencies differ.")
    if command.type in JournalTransaction.LIMITED:
        for leg in command.legs:
            if leg.amount < 0 and leg.account_id in book.allowances:
                book.allowances[leg.account_id].check(-leg.amount)
    for leg in command.legs:
        account = book.accounts[leg.account_id]
        missing = -leg.amount - book.balances[account.pk]
        if leg.amount < 0 and not account.allow_negative and missing > 0:
            raise InsufficientFunds(f"Account {leg.account_id} is {missing} short of the amount.")
    for leg in command.legs:
        account = book.accounts[leg.account_id]
        if account.kind == Account.Kind.WALLET and book.balances[account.pk] + leg.amount > MAX_AMOUNT:
            raise BalanceLimitExceeded(f"Account {leg.account_id} would exceed the largest balance.")


def accept(command: Command, book: Book) -> UUID:
    """Count an accepted command in, so that the next one may spend what this one brought. Returns its id."""
    transaction_id = command.transaction_id or clock.new_id()
    for leg in command.legs:
        book.balances[leg.account_id] += leg.amount
        if leg.amount < 0 and leg.account_id in book.allowances and command.type in JournalTransaction.LIMITED:
            book.allowances[leg.account_id].spent -= leg.amount
    book.known[command.initiator_id, command.key] = KnownKey(
        fingerprint=command.fingerprint,
        transaction_id=transaction_id,
        type=command.type,
        created_at=book.now,
        status=None,
        response=None,
    )
    return transaction_id


def write(accepted: Mapping[UUID, Command], book: Book) -> dict[UUID, dict[int, int]]:
    """Write journal, entries and events of all accepted commands in one round trip; returns the balances after.

    Raises:
        LostRace: somebody used one of the keys with other accounts meanwhile.
    """
    by_key = sorted(accepted.items(), key=lambda item: (item[1].initiator_id, item[1].key))
    legs = [(id_, leg.account_id, leg.amount) for id_, command in accepted.items() for leg in command.legs]
    events = [_event(id_, command, book) for id_, command in accepted.items() if command.event is not None]
    insert_events, event_parameters = event_insert(events)
    balances: dict[UUID, dict[int, int]] = {id_: {} for id_ in accepted}
    with translated(CONSTRAINTS), connection.cursor() as cursor:
        cursor.execute(
            "; ".join([INSERT_JOURNAL, INSERT_ENTRIES, insert_events]),
            [book.now, *_journal_columns(by_key), book.now, *_columns(legs, 3), *event_parameters],
        )
        cursor.nextset()
        for transaction_id, account_id, balance_after in cursor.fetchall():
            balances[transaction_id][account_id] = balance_after
        cursor.nextset()
    return balances


def _journal_columns(commands: Sequence[tuple[UUID, Command]]) -> list[list[Any]]:
    rows = [
        (
            id_,
            command.initiator_id,
            command.key,
            command.type,
            command.fingerprint,
            command.reverses_id,
            command.continues_id,
            command.reference,
            None if command.metadata is None else Jsonb(command.metadata),
        )
        for id_, command in commands
    ]
    return _columns(rows, 9)


def _columns(rows: Iterable[tuple[Any, ...]], width: int) -> list[list[Any]]:
    table = list(rows)
    return [[row[position] for row in table] for position in range(width)]


def _event(transaction_id: UUID, command: Command, book: Book) -> Event:
    event = command.event
    assert event is not None  # noqa: S101  The caller filters.
    payload = {
        "transactionId": str(transaction_id),
        "from": event.from_account_id,
        "to": event.to_account_id,
        "amount": command.amount,
        "currency": book.accounts[command.legs[0].account_id].currency,
        "type": command.type,
        "occurredAt": clock.rfc3339(book.now),
        **event.facts,
    }
    return Event(
        event_id=uuid5(EVENT_NAMESPACE, str(transaction_id)),
        topic=event.topic,
        key=str(event.key_account_id),
        payload=payload,
    )
