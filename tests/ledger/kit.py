"""What the posting tests say over and over: a command, a post, and what came of it."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from ledger.commands import Command, Leg, MoneyEvent, Outcome, Posted, fingerprint_of
from ledger.models import JournalTransaction, LedgerEntry
from ledger.services import post
from tests.world import Person
from wallet_project.kernel.db import run_in_transaction

POSTED, REPLAYED = "posted", "replayed"
_numbers = itertools.count(1)


def move(
    payer: Person,
    payee: Person,
    amount: int,
    *,
    key: str | None = None,
    reference: str = "",
    stamp: str | None = None,
    type: str = JournalTransaction.Type.TRANSFER,
) -> Command:
    """A command as `transfers.services.transfer` makes it; a key of its own unless one is given."""
    return spread(payer, {payee: amount}, key=key, reference=reference, stamp=stamp, type=type)


def spread(
    payer: Person,
    shares: dict[Person, int],
    *,
    key: str | None = None,
    reference: str = "",
    stamp: str | None = None,
    type: str = JournalTransaction.Type.TRANSFER,
) -> Command:
    """One debit and as many credits as there are shares."""
    legs = [Leg(account_id=payer.account_id, amount=-sum(shares.values()), owner_id=payer.user.pk)]
    legs += [Leg(account_id=payee.account_id, amount=amount) for payee, amount in shares.items()]
    named = {str(leg.account_id): leg.amount for leg in legs}
    return Command(
        initiator_id=payer.user.pk,
        stamp=payer.caller.stamp if stamp is None else stamp,
        key=key or f"kit:{next(_numbers)}",
        fingerprint=fingerprint_of("kit", {**named, "reference": reference}),
        type=type,
        legs=tuple(legs),
        event=MoneyEvent(
            topic="wallet.transfers",
            key_account_id=payer.account_id,
            from_account_id=payer.account_id,
            to_account_id=next(iter(shares)).account_id,
        ),
        reference=reference,
    )


def post_all(*commands: Command) -> list[Outcome]:
    """Post them in one database transaction."""
    return run_in_transaction(lambda: post(commands))


def words(outcomes: Sequence[Outcome]) -> list[str]:
    """Each outcome in a word: posted, replayed, or the refusal's code."""
    return [word(outcome) for outcome in outcomes]


def word(outcome: Outcome) -> str:
    if isinstance(outcome, Posted):
        return REPLAYED if outcome.replayed else POSTED
    return outcome.error.code


def ids(outcomes: Sequence[Outcome]) -> list[UUID | None]:
    """Each outcome's transaction, None for a refusal."""
    return [outcome.transaction_id if isinstance(outcome, Posted) else None for outcome in outcomes]


def entries_of(person: Person) -> list[tuple[int, int]]:
    """The wallet's history, oldest first: amount and balance after."""
    entries = LedgerEntry.objects.filter(account_id=person.account_id).order_by("id")
    return list(entries.values_list("amount", "balance_after"))


def written_at(transaction_id: UUID) -> set[datetime]:
    """All times under which the transaction stands in the book."""
    journal = JournalTransaction.objects.get(pk=transaction_id)
    return {journal.created_at, *journal.entries.values_list("created_at", flat=True)}


# Raises an error the first times it is asked; a sequence counts, since a rollback does not turn it back.
_FAULT = """
    CREATE SEQUENCE fault_count;
    CREATE FUNCTION fault() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        IF nextval('public.fault_count') <= TG_ARGV[1]::int THEN
            RAISE EXCEPTION 'a fault on purpose' USING ERRCODE = TG_ARGV[0];
        END IF;
        RETURN NULL;
    END $$;
"""
_NO_FAULT = "DROP FUNCTION IF EXISTS fault() CASCADE; DROP SEQUENCE IF EXISTS fault_count;"


@contextmanager
def faulty(
    owner: psycopg.Connection[Any], table: str, sqlstate: str, *, times: int = 1, at_commit: bool = False
) -> Iterator[None]:
    """While the block runs, the table's first inserts fail with that SQLSTATE, at once or at COMMIT."""
    kind = "CONSTRAINT" if at_commit else ""
    when = "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW" if at_commit else "FOR EACH STATEMENT"
    owner.autocommit = True
    owner.execute(_NO_FAULT + _FAULT)
    owner.execute(
        f"CREATE {kind} TRIGGER fault AFTER INSERT ON {table} {when} EXECUTE FUNCTION fault('{sqlstate}', '{times}')"
    )
    try:
        yield
    finally:
        owner.execute(_NO_FAULT)
