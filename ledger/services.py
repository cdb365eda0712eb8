"""Posting: the one way money moves."""

import logging
from collections.abc import Sequence
from uuid import UUID

from accounts.models import Account
from ledger.commands import Command, Outcome, Posted
from ledger.errors import ClockAhead
from ledger.posting import accept, decide, read_book, write
from wallet_project.kernel.db import lock_rows

logger = logging.getLogger(__name__)


def post(commands: Sequence[Command]) -> list[Outcome]:
    """Post one command or a thousand in the open transaction; one outcome per command, in their order.

    A refused command leaves nothing behind, and its key runs anew. Commands are decided in order: the second may
    spend what the first brought, and a key that comes twice takes the earlier outcome unless that was a refusal.

    The order is what makes it safe. All accounts are locked first, once, sorted. Only then are keys, users, freezes
    and the clock read, for a new statement sees what was committed during the wait. Then all is decided, and written
    in one go: journal, entries, events. The key is looked up before it is claimed, since a refused command must not
    burn it; who uses one key with other accounts at the same moment meets the unique constraint and begins again.

    Raises:
        LostRace: begin again; `run_in_transaction` does.
        TransactionManagementError: no transaction is open; one `post` per transaction.
        ClockAhead: an account's last entry lies in the future.
        OperationalError: a lock was not had in time.
    """
    ids = {leg.account_id for command in commands for leg in command.legs}
    accounts = {account.pk: account for account in lock_rows(Account.objects.filter(pk__in=ids))}
    book = read_book(commands, accounts)
    outcomes: list[Outcome | None] = []
    accepted: dict[UUID, Command] = {}
    positions: dict[UUID, int] = {}
    for position, command in enumerate(commands):
        outcome = decide(command, book)
        if outcome is None:
            transaction_id = accept(command, book)
            accepted[transaction_id] = command
            positions[transaction_id] = position
        outcomes.append(outcome)
    if accepted:
        try:
            balances = write(accepted, book)
        except ClockAhead:
            logger.critical("entries would be dated %s, ahead of the database's clock: check the clocks", book.now)
            raise
        for transaction_id, position in positions.items():
            outcomes[position] = Posted(
                transaction_id=transaction_id,
                created_at=book.now,
                replayed=False,
                balances=balances[transaction_id],
            )
    return [outcome for outcome in outcomes if outcome is not None]
