"""Refusals of the book, and which constraint means which."""

from accounts.errors import AccountNotFound
from wallet_project.kernel.db import LostRace
from wallet_project.kernel.errors import (
    Conflict,
    DomainError,
    IllegalState,
    NotFound,
    Retry,
    RuleViolation,
    Unavailable,
)


class TransactionNotFound(NotFound):
    """No such transaction that touches a wallet of the caller."""


class IdempotencyKeyReused(RuleViolation):
    """The key belongs to another command of this user's."""

    code = "idempotency_key_reused"
    title = "Idempotency key reused"
    retry = Retry.NEW_KEY


class SameAccount(RuleViolation):
    """A transfer from an account to itself."""

    code = "same_account"
    title = "Same account"


class AccountClosed(RuleViolation):
    """One of the accounts is closed."""

    code = "account_closed"
    title = "Account closed"


class AccountFrozen(RuleViolation):
    """The account to be debited is frozen."""

    code = "account_frozen"
    title = "Account frozen"
    retry = Retry.SAME_KEY


class CurrencyMismatch(RuleViolation):
    """The accounts' currencies differ."""

    code = "currency_mismatch"
    title = "Currency mismatch"


class LimitExceeded(RuleViolation):
    """The wallet's tier allows no such outflow; `fields` names the limit and what is left of it."""

    code = "limit_exceeded"
    title = "Limit exceeded"
    retry = Retry.SAME_KEY


class InsufficientFunds(RuleViolation):
    """The account to be debited does not hold the amount."""

    code = "insufficient_funds"
    title = "Insufficient funds"
    retry = Retry.SAME_KEY


class BalanceLimitExceeded(RuleViolation):
    """The account to be credited would exceed the largest balance, 2^53 - 1 minor units."""

    code = "balance_limit_exceeded"
    title = "Balance limit exceeded"
    retry = Retry.SAME_KEY


class CaptureExceedsHold(RuleViolation):
    """More would be taken than is on hold."""

    code = "capture_exceeds_hold"
    title = "Capture exceeds hold"


class MoneyOnHold(IllegalState):
    """A wallet that is to be closed has money on hold."""

    def __init__(self, detail: str = "The account has money on hold.") -> None:
        super().__init__(detail)


class AlreadyReversed(Conflict):
    """Nothing is left to reverse; the detail names the reversals."""

    code = "already_reversed"
    title = "Already reversed"


class NotReversible(RuleViolation):
    """This kind of transaction cannot be reversed; a reversal never."""

    code = "not_reversible"
    title = "Not reversible"


class ReversalExceedsOriginal(RuleViolation):
    """More would go back than ever came."""

    code = "reversal_exceeds_original"
    title = "Reversal exceeds original"


class ClockAhead(Unavailable):
    """An account's last entry is over a minute ahead of the database's clock; staff must look at the clock."""


# The database has the last word. `post` decides before, under the same locks, so of these only the lost race ever
# happens; whoever posts by another way is told what the rule means.
CONSTRAINTS: dict[str, type[DomainError] | type[LostRace]] = {
    "journal_key_unique": LostRace,
    "idempotency_record_pkey": LostRace,
    "account_balance_not_negative": InsufficientFunds,
    "account_balance_within_maximum": BalanceLimitExceeded,
    "ledger_entry_account_not_closed": AccountClosed,
    "ledger_entry_account_not_frozen": AccountFrozen,
    "ledger_entry_account_fk": AccountNotFound,
    "ledger_entry_balanced": CurrencyMismatch,
    "account_outflow_within_limit": LimitExceeded,
    "account_outflow_within_single_limit": LimitExceeded,
    "held_money_within_amount": CaptureExceedsHold,
    "account_closed_holds_nothing": MoneyOnHold,
    "ledger_entry_not_ahead": ClockAhead,
    "reversal_within_original": ReversalExceedsOriginal,
    "reversal_not_of_reversal": NotReversible,
    "reversal_same_currency": NotReversible,
    "reversal_mirrors_original": NotReversible,
}
