"""The book, as a specification. What a plain constraint cannot express is a trigger in `migrations/0002_rules.py`."""

from django.conf import settings
from django.contrib.postgres.functions import TransactionNow
from django.db import models
from django.db.models import F, Q

from accounts.models import Account
from wallet_project.kernel import clock


class JournalTransaction(models.Model):
    """One movement of money, whole: its entries sum to zero in each currency.

    Invariants, and what holds each:
    - at least two entries that sum to zero per currency: triggers `ledger_entry_balanced`, `journal_has_entries`;
    - append-only: triggers `journal_is_kept`, `ledger_entry_is_kept`;
    - a key once per initiator, for ever: `journal_key_unique` (so this table is not partitioned);
    - entries come only from the database transaction that made this row: column `xact`, set by default, and
      triggers `journal_xact_is_own`, `ledger_entry_same_transaction`;
    - all entries carry this row's `created_at`: trigger `ledger_entry_same_time`;
    - reversals never exceed their original: `reversal_within_original`; they go back between the same families in the
      same currency: `reversal_mirrors_original`, `reversal_same_currency`; and are not reversed themselves:
      `reversal_not_of_reversal`;
    - each type has its own kinds of account on either side, and a consolidation stays within one family:
      `ledger_entry_fits_type`;
    - an opening (HOLD, WITHDRAWAL) sets money aside, and no more of it is spent or released than there is, by those
      that continue it (CAPTURE, SETTLEMENT, RELEASE): `journal_continues_opening`, `held_money_continues_opening`,
      `held_money_within_amount`;
    - a wallet with a tier pays out no more than that allows: `account_outflow_within_single_limit`,
      `account_outflow_within_limit`.

    `response` is what the caller was answered, null where the answer follows from the row itself.
    """

    class Type(models.TextChoices):
        TRANSFER = "TRANSFER", "Transfer"
        DEPOSIT = "DEPOSIT", "Deposit"
        WITHDRAWAL = "WITHDRAWAL", "Withdrawal"
        HOLD = "HOLD", "Hold"
        CAPTURE = "CAPTURE", "Capture"
        RELEASE = "RELEASE", "Release"
        SETTLEMENT = "SETTLEMENT", "Settlement"
        RETURN = "RETURN", "Return"
        REVERSAL = "REVERSAL", "Reversal"
        CHARGEBACK = "CHARGEBACK", "Chargeback"
        CONSOLIDATION = "CONSOLIDATION", "Consolidation"

    MOVES_FROZEN = (Type.REVERSAL, Type.CHARGEBACK, Type.CONSOLIDATION)
    OPENINGS = (Type.HOLD, Type.WITHDRAWAL)
    LIMITED = (Type.TRANSFER, Type.HOLD, Type.WITHDRAWAL)

    id = models.UUIDField(primary_key=True, default=clock.new_id, db_default=models.Func(function="gen_random_uuid"))
    idempotency_key = models.CharField(max_length=64)
    type = models.CharField(max_length=32)
    created_at = models.DateTimeField(db_default=TransactionNow())
    initiator = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
    )
    fingerprint = models.BinaryField(default=b"", db_default=models.Value(b""))
    response = models.JSONField(null=True, blank=True)
    reverses = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="reversals", db_index=False
    )
    continues = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="continuations", db_index=False
    )
    reference = models.CharField(max_length=140, blank=True, default="", db_default="")
    metadata = models.JSONField(null=True, blank=True)

    class Meta:
        db_table = "journal_transaction"
        permissions = [("reverse_journaltransaction", "Can reverse transactions")]
        constraints = [
            # The key look-up; also lists what an initiator sent.
            models.UniqueConstraint(
                name="journal_key_unique", fields=["initiator", "idempotency_key"], nulls_distinct=False
            ),
            models.CheckConstraint(name="journal_key_given", condition=~Q(idempotency_key="")),
            models.CheckConstraint(
                name="journal_reversal_has_original",
                condition=Q(reverses=None) & ~Q(type="REVERSAL") | Q(reverses__isnull=False, type="REVERSAL"),
            ),
            models.CheckConstraint(
                name="journal_continues_opening",
                condition=Q(continues=None) & ~Q(type__in=["CAPTURE", "RELEASE", "SETTLEMENT"])
                | Q(continues__isnull=False, type__in=["CAPTURE", "RELEASE", "SETTLEMENT"]),
            ),
        ]
        indexes = [
            # From an original to its reversals; nearly all rows reverse nothing.
            models.Index(name="journal_reverses", fields=["reverses"], condition=Q(reverses__isnull=False)),
            # From an opening to what became of its money.
            models.Index(name="journal_continues", fields=["continues"], condition=Q(continues__isnull=False)),
            # The admin's list, newest first, and its date filter.
            models.Index(name="journal_created_at", fields=["created_at"]),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.pk}"


class LedgerEntry(models.Model):
    """One leg of a journal transaction: a negative amount is a debit of the account, a positive one a credit.

    The table is partitioned by month (`migrations/0002_entries.py`). The trigger `ledger_entry_posts` moves the
    balance, fills `balance_after` and draws the id after it holds the account's lock, so within an account ids are in
    order and `balance_after` is the sum of all amounts up to and including this one.
    """

    id = models.BigAutoField(primary_key=True)
    transaction = models.ForeignKey(
        JournalTransaction, on_delete=models.PROTECT, related_name="entries", db_index=False
    )
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="entries", db_index=False)
    amount = models.BigIntegerField()
    balance_after = models.BigIntegerField(db_default=0)
    created_at = models.DateTimeField(db_default=TransactionNow())

    class Meta:
        db_table = "ledger_entry"
        verbose_name_plural = "ledger entries"
        constraints = [
            models.CheckConstraint(name="ledger_entry_amount_not_zero", condition=~Q(amount=0)),
        ]
        indexes = [
            # History and the last entry of an account, in the order of posting.
            models.Index(name="ledger_entry_account_id", fields=["account", "id"]),
            # History of a period; the balance at a moment.
            models.Index(name="ledger_entry_account_time", fields=["account", "created_at", "id"]),
            # The legs of a transaction; name created_at as well, so that one partition answers.
            models.Index(name="ledger_entry_transaction", fields=["transaction"]),
        ]

    def __str__(self) -> str:
        return f"entry {self.pk}"


class ReversalBudget(models.Model):
    """How much of a reversed transaction has gone back. Written by the trigger `ledger_entry_balanced` alone.

    The CHECK decides and the row's lock serialises, so that two reversals can never exceed the original together.
    """

    transaction = models.OneToOneField(
        JournalTransaction, on_delete=models.PROTECT, primary_key=True, related_name="reversal_budget"
    )
    original = models.BigIntegerField()
    reversed = models.BigIntegerField()

    class Meta:
        db_table = "reversal_budget"
        constraints = [
            models.CheckConstraint(
                name="reversal_within_original", condition=Q(reversed__gt=0, reversed__lte=F("original"))
            ),
        ]

    def __str__(self) -> str:
        return f"budget of {self.transaction_id}"


class HeldMoney(models.Model):
    """What an opening (a HOLD or a WITHDRAWAL) has set aside of a wallet's money, and what became of it; minor units.

    Written by the trigger `ledger_entry_balanced` alone: the opening makes the row; a CAPTURE or a SETTLEMENT spends, a
    RELEASE gives back. The CHECK decides and the row's lock serialises, so that no money on hold goes out twice. A
    wallet with money on hold cannot be closed: trigger `account_closed_holds_nothing`.
    """

    transaction = models.OneToOneField(
        JournalTransaction, on_delete=models.PROTECT, primary_key=True, related_name="held_money"
    )
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+", db_index=False)
    hold_account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+", db_index=False)
    amount = models.BigIntegerField()
    spent = models.BigIntegerField(default=0, db_default=0)
    released = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        db_table = "held_money"
        constraints = [
            models.CheckConstraint(
                name="held_money_within_amount",
                condition=Q(amount__gt=0, spent__gte=0, released__gte=0, amount__gte=F("spent") + F("released")),
            ),
        ]
        indexes = [
            # What a wallet has on hold now; nearly all rows are used up.
            models.Index(
                name="held_money_open",
                fields=["account"],
                condition=Q(amount__gt=F("spent") + F("released")),
            ),
        ]

    def __str__(self) -> str:
        return f"held by {self.transaction_id}"


class AccountOutflow(models.Model):
    """What a wallet with a tier has paid out on the business date of its last payment, and at most might; minor units.

    Written by the trigger `ledger_entry_balanced` alone: a new date begins from the entries of that date, and so does
    the count under another tier (trigger `account_outflow_follows_tier`). A RELEASE gives back what its opening had
    counted, as long as that date goes on.
    """

    account = models.OneToOneField(Account, on_delete=models.PROTECT, primary_key=True, related_name="+")
    business_date = models.DateField()
    spent = models.BigIntegerField()
    most = models.BigIntegerField(null=True, blank=True)

    class Meta:
        db_table = "account_outflow"
        constraints = [
            models.CheckConstraint(
                name="account_outflow_within_limit", condition=Q(most=None) | Q(spent__lte=F("most"))
            ),
        ]

    def __str__(self) -> str:
        return f"outflow of {self.account_id} on {self.business_date}"


class IdempotencyRecord(models.Model):
    """The key and the answer of a command that posts nothing at once, written with its work. Append-only."""

    pk = models.CompositePrimaryKey("initiator", "key")
    initiator = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", db_index=False)
    key = models.CharField(max_length=64)
    fingerprint = models.BinaryField()
    status = models.SmallIntegerField()
    response = models.TextField()  # JSON as it was sent: jsonb would reorder it
    created_at = models.DateTimeField(db_default=TransactionNow())

    class Meta:
        db_table = "idempotency_record"

    def __str__(self) -> str:
        return f"key {self.key}"


class ReconciliationRun(models.Model):
    """One check of the whole book. The nightly run is claimed by inserting the row: once per business date.

    A run that died or failed is tried again in the same row as its next attempt; the number tells the live worker from
    one that was taken for dead. Finished runs are final: trigger `reconciliation_run_is_final`.
    """

    class Status(models.TextChoices):
        RUNNING = "RUNNING", "Running"
        CLEAN = "CLEAN", "Clean"
        FINDINGS = "FINDINGS", "Findings"
        FAILED = "FAILED", "Failed"

    business_date = models.DateField(null=True, blank=True, unique=True)  # null: run by hand
    status = models.CharField(max_length=8, choices=Status, default=Status.RUNNING, db_default=Status.RUNNING)
    started_at = models.DateTimeField(db_default=TransactionNow())
    progress_at = models.DateTimeField(db_default=TransactionNow())
    finished_at = models.DateTimeField(null=True, blank=True)
    attempt = models.IntegerField(default=1, db_default=1)
    transactions_checked = models.BigIntegerField(default=0, db_default=0)
    accounts_checked = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        db_table = "reconciliation_run"
        constraints = [
            models.CheckConstraint(
                name="reconciliation_run_status_known",
                condition=Q(status__in=["RUNNING", "CLEAN", "FINDINGS", "FAILED"]),
            ),
            models.CheckConstraint(
                name="reconciliation_run_finished_when",
                condition=Q(status="RUNNING", finished_at=None) | ~Q(status="RUNNING") & Q(finished_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"reconciliation {self.pk}"


class ReconciliationFinding(models.Model):
    """Something the books should not show: what was expected, what was found, and where.

    Append-only: trigger `reconciliation_finding_is_kept`.
    """

    class Check(models.TextChoices):
        TRANSACTION_SUM = "TRANSACTION_SUM", "Entries of a transaction do not sum to zero"
        BOOK_SUM = "BOOK_SUM", "All entries of a currency do not sum to zero"
        ACCOUNT_BALANCE = "ACCOUNT_BALANCE", "Balance is not the sum of the account's entries"
        BALANCE_AFTER = "BALANCE_AFTER", "Balance after an entry is not the sum up to it"
        HELD_MONEY = "HELD_MONEY", "A HOLD account is not what its openings have left"
        GUARD = "GUARD", "What holds a rule is missing, altered or switched off"

    run = models.ForeignKey(ReconciliationRun, on_delete=models.PROTECT, related_name="findings")
    check_name = models.CharField(max_length=32, choices=Check)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    transaction = models.ForeignKey(
        JournalTransaction, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    currency = models.CharField(max_length=3, blank=True)
    expected = models.BigIntegerField(null=True, blank=True)
    actual = models.BigIntegerField(null=True, blank=True)
    detail = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(db_default=TransactionNow())

    class Meta:
        db_table = "reconciliation_finding"

    def __str__(self) -> str:
        parts = [self.get_check_name_display()]
        if self.account_id is not None:
            parts.append(f"account {self.account_id}")
        if self.transaction_id is not None:
            parts.append(f"transaction {self.transaction_id}")
        if self.expected is not None:
            parts.append(f"expected {self.expected}, actual {self.actual} {self.currency}")
        if self.detail:
            parts.append(self.detail)
        return "; ".join(parts)
