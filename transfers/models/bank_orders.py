"""Bank orders: money that the bank is asked to bring or to take, and all that was heard of it."""

from collections.abc import Mapping

from django.conf import settings
from django.contrib.postgres.functions import TransactionNow
from django.db import models
from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Cast, Replace

from accounts.models import Account
from ledger.models import JournalTransaction
from wallet_project.kernel import clock
from wallet_project.kernel.money import MAX_AMOUNT

# From each status, those that an order may move to; None is before it was there. The only such table: the CHECK
# `bank_order_move_legal` is made from it.
LEGAL_MOVES: Mapping[str | None, tuple[str, ...]] = {
    None: ("PENDING",),
    "PENDING": ("SUBMITTED",),
    "SUBMITTED": ("COMPLETED", "FAILED", "UNKNOWN"),
    "UNKNOWN": ("COMPLETED", "FAILED", "SUBMITTED"),
}


class BankOrderQuerySet(models.QuerySet["BankOrder"]):
    def owned_by(self, user_id: int) -> "BankOrderQuerySet":
        return self.filter(account__owner_id=user_id)

    def open(self) -> "BankOrderQuerySet":
        """Those of which nobody knows the end."""
        return self.filter(status__in=BankOrder.OPEN)


class BankOrder(models.Model):
    """A deposit or a withdrawal: what the bank is asked to do, and how far that has come. Amounts in minor units.

    PENDING was asked for by the customer; SUBMITTED is being sent to the bank, or with it; UNKNOWN is one that the bank
    did not answer; COMPLETED and FAILED are final, but that a completed one may be returned, in whole or part.
    Invariants, and what holds each:
    - it moves as LEGAL_MOVES says: `bank_order_move_legal`; from the status that it has: `bank_order_move_from_state`;
      by a change alone: `bank_order_moves_by_change`, `bank_order_opens_pending`, `bank_order_has_history`;
    - each move moves its money, or none: `bank_order_move_moves_money`; and money of orders moves by them alone, judged
      at COMMIT: `journal_has_bank_order`;
    - no more is returned than there was: `bank_order_returned_within_amount`; and of a completed order alone:
      `bank_return_of_completed`, `bank_return_moves_money`;
    - it is of an open wallet: `bank_order_of_open_wallet`; which stays open until the end of the order:
      `account_closed_has_no_order`;
    - a withdrawal is its opening, with the same id: `bank_order_fits_kind`;
    - the bank knows it by one reference for ever: a generated column, made from the id;
    - none is forgotten: an open one has a time for its next step: `bank_order_open_has_next_step`;
    - what it is never changes: `bank_order_is_fixed`; none is deleted: `bank_order_is_kept`.

    `attempts` counts the tries since the last move. `waiting_since` is when an open order was made.
    """

    class Kind(models.TextChoices):
        DEPOSIT = "DEPOSIT", "Deposit"
        WITHDRAWAL = "WITHDRAWAL", "Withdrawal"

    class Status(models.TextChoices):
        PENDING = "PENDING", "Pending"
        SUBMITTED = "SUBMITTED", "Submitted"
        UNKNOWN = "UNKNOWN", "Unknown"
        COMPLETED = "COMPLETED", "Completed"
        FAILED = "FAILED", "Failed"

    OPEN = (Status.PENDING, Status.SUBMITTED, Status.UNKNOWN)

    id = models.UUIDField(primary_key=True, default=clock.new_id)
    kind = models.CharField(max_length=10, choices=Kind)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+", db_index=False)
    amount = models.BigIntegerField()
    destination = models.CharField(max_length=64, blank=True, default="", db_default="")
    reference = models.CharField(max_length=140, blank=True, default="", db_default="")
    bank_reference = models.GeneratedField(
        expression=Replace(Cast("id", models.TextField()), Value("-"), Value(""), output_field=models.TextField()),
        output_field=models.CharField(max_length=64),
        db_persist=True,
        unique=True,
    )
    opening = models.OneToOneField(
        JournalTransaction, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    status = models.CharField(max_length=9, choices=Status, default=Status.PENDING, db_default=Status.PENDING)
    returned = models.BigIntegerField(default=0, db_default=0)
    attempts = models.IntegerField(default=0, db_default=0)
    next_step_at = models.DateTimeField(null=True, blank=True, db_default=TransactionNow())
    stuck_at = models.DateTimeField(null=True, blank=True)  # when staff were told that it cannot be booked
    initiator = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", db_index=False)
    created_at = models.DateTimeField(db_default=TransactionNow())
    waiting_since = models.GeneratedField(
        expression=Case(When(status__in=["PENDING", "SUBMITTED", "UNKNOWN"], then=F("created_at"))),
        output_field=models.DateTimeField(null=True),
        db_persist=True,
    )

    objects = BankOrderQuerySet.as_manager()

    class Meta:
        db_table = "bank_order"
        permissions = [("ask_bank", "Can ask the bank about orders")]
        constraints = [
            models.CheckConstraint(name="bank_order_kind_known", condition=Q(kind__in=["DEPOSIT", "WITHDRAWAL"])),
            models.CheckConstraint(
                name="bank_order_status_known",
                condition=Q(status__in=["PENDING", "SUBMITTED", "UNKNOWN", "COMPLETED", "FAILED"]),
            ),
            models.CheckConstraint(
                name="bank_order_amount_positive", condition=Q(amount__gte=1, amount__lte=MAX_AMOUNT)
            ),
            models.CheckConstraint(
                name="bank_order_fits_kind",
                condition=Q(kind="DEPOSIT", opening=None, destination="")
                | Q(kind="WITHDRAWAL", opening__isnull=False, opening=F("id")) & ~Q(destination=""),
            ),
            models.CheckConstraint(
                name="bank_order_returned_within_amount", condition=Q(returned__gte=0, returned__lte=F("amount"))
            ),
            models.CheckConstraint(
                name="bank_order_open_has_next_step",
                condition=Q(status__in=["COMPLETED", "FAILED"]) | Q(next_step_at__isnull=False),
            ),
        ]
        indexes = [
            # The sweep: what is to be done next. Nearly all rows need nothing any more.
            models.Index(name="bank_order_due", fields=["next_step_at"], condition=Q(next_step_at__isnull=False)),
            # The admin's list: the longest waiting first, then the newest.
            models.Index(name="bank_order_waiting", fields=["waiting_since", "-id"]),
            # The admin's list by status.
            models.Index(name="bank_order_by_status", fields=["status", "waiting_since", "-id"]),
            # Whether a wallet can be closed; the admin's search by account.
            models.Index(name="bank_order_of_account", fields=["account", "status"]),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"

    @property
    def is_open(self) -> bool:
        return self.status in self.OPEN


def _legal_moves() -> Q:
    # A comparison with null is no refusal, so that there is a status to come from is said in so many words.
    beginning = Q(from_status=None, to_status__in=list(LEGAL_MOVES[None]))
    others = Q()
    for status, next_ones in LEGAL_MOVES.items():
        if status is not None:
            others |= Q(from_status=status, to_status__in=list(next_ones))
    return beginning | Q(from_status__isnull=False) & others


class Cause(models.TextChoices):
    """What made an order move, or money come back."""

    REQUEST = "REQUEST", "Asked for by the customer"
    SUBMIT = "SUBMIT", "About to be sent to the bank"
    ANSWER = "ANSWER", "The bank's answer"
    NO_ANSWER = "NO_ANSWER", "The bank did not answer"
    NOTICE = "NOTICE", "The bank's notice"


class BankOrderChange(models.Model):
    """One move of an order. Its insert moves the order (trigger `bank_order_moves`). Append-only.

    `happened_at` is the bank's time, `created_at` ours; in order within an order, as it is locked before it moves.
    """

    order = models.ForeignKey(BankOrder, on_delete=models.PROTECT, related_name="changes", db_index=False)
    from_status = models.CharField(max_length=9, null=True, blank=True)  # noqa: DJ001  Null is before there was one.
    to_status = models.CharField(max_length=9)
    cause = models.CharField(max_length=9, choices=Cause)
    detail = models.CharField(max_length=500, blank=True, default="", db_default="")
    transaction = models.OneToOneField(
        JournalTransaction, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    happened_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=TransactionNow())

    class Meta:
        db_table = "bank_order_change"
        constraints = [
            models.CheckConstraint(name="bank_order_move_legal", condition=_legal_moves()),
            models.CheckConstraint(
                name="bank_order_change_cause_known",
                condition=Q(cause__in=["REQUEST", "SUBMIT", "ANSWER", "NO_ANSWER", "NOTICE"]),
            ),
            models.UniqueConstraint(name="bank_order_begins_once", fields=["order"], condition=Q(from_status=None)),
        ]
        indexes = [
            # An order's history.
            models.Index(name="bank_order_change_of_order", fields=["order", "id"]),
        ]

    def __str__(self) -> str:
        return f"change {self.pk}"


class BankReturn(models.Model):
    """Money of a completed order that went back, in whole or part: of a deposit to the bank, of a withdrawal to us.

    Its insert adds to the order's `returned` (trigger `bank_return_counts`). The bank names each return, and each
    counts once: `bank_return_once`. Append-only.
    """

    order = models.ForeignKey(BankOrder, on_delete=models.PROTECT, related_name="returns", db_index=False)
    return_id = models.CharField(max_length=64)
    amount = models.BigIntegerField()
    cause = models.CharField(max_length=9, choices=Cause)
    transaction = models.OneToOneField(JournalTransaction, on_delete=models.PROTECT, related_name="+")
    happened_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=TransactionNow())

    class Meta:
        db_table = "bank_return"
        constraints = [
            # Also an order's returns.
            models.UniqueConstraint(name="bank_return_once", fields=["order", "return_id"]),
            models.CheckConstraint(name="bank_return_amount_positive", condition=Q(amount__gt=0)),
            models.CheckConstraint(name="bank_return_named", condition=~Q(return_id="")),
            models.CheckConstraint(name="bank_return_cause_known", condition=Q(cause__in=["ANSWER", "NOTICE"])),
        ]

    def __str__(self) -> str:
        return f"return {self.pk}"


class BankNotice(models.Model):
    """What the bank told unasked and signed, word for word, and what came of it. Append-only; each counts once."""

    class Outcome(models.TextChoices):
        APPLIED = "APPLIED", "Applied"
        REPEATED = "REPEATED", "Known already"
        WAITING = "WAITING", "Came before its time"
        UNKNOWN_REFERENCE = "UNKNOWN_REFERENCE", "Of no order of ours"
        ILLEGAL_MOVE = "ILLEGAL_MOVE", "Not in the order's state"
        MISMATCH = "MISMATCH", "Another amount or currency"

    notice_id = models.CharField(max_length=64, unique=True)
    order = models.ForeignKey(
        BankOrder, on_delete=models.PROTECT, null=True, blank=True, related_name="notices", db_index=False
    )
    reference = models.CharField(max_length=64)
    event = models.CharField(max_length=8)
    amount = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    return_id = models.CharField(max_length=64, blank=True, default="", db_default="")
    reason = models.CharField(max_length=500, blank=True, default="", db_default="")
    occurred_at = models.DateTimeField()
    body = models.BinaryField()
    outcome = models.CharField(max_length=17, choices=Outcome)
    created_at = models.DateTimeField(db_default=TransactionNow())

    class Meta:
        db_table = "bank_notice"
        constraints = [
            models.CheckConstraint(
                name="bank_notice_outcome_known",
                condition=Q(
                    outcome__in=["APPLIED", "REPEATED", "WAITING", "UNKNOWN_REFERENCE", "ILLEGAL_MOVE", "MISMATCH"]
                ),
            ),
            models.CheckConstraint(
                name="bank_notice_of_order",
                condition=Q(order=None, outcome="UNKNOWN_REFERENCE")
                | Q(order__isnull=False) & ~Q(outcome="UNKNOWN_REFERENCE"),
            ),
        ]
        indexes = [
            # What was told of an order, and which of its returns wait for its completion.
            models.Index(name="bank_notice_of_an_order", fields=["order", "id"]),
            # The admin's list by outcome, and its search by the bank's reference.
            models.Index(name="bank_notice_by_outcome", fields=["outcome", "-id"]),
            models.Index(name="bank_notice_by_reference", fields=["reference"]),
        ]

    def __str__(self) -> str:
        return f"notice {self.notice_id}"
