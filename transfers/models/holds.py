"""Holds: money that a merchant is promised."""

from datetime import timedelta

from django.contrib.postgres.functions import TransactionNow
from django.db import models
from django.db.models import F, Q

from accounts.models import Account
from ledger.models import JournalTransaction


class HoldQuerySet(models.QuerySet["Hold"]):
    def seen_by(self, user_id: int) -> "HoldQuerySet":
        """Those of the payer's and of the payee's."""
        own = Account.objects.owned_by(user_id).values("pk")
        return self.filter(Q(account__in=own) | Q(to_account__in=own))

    def commanded_by(self, user_id: int) -> "HoldQuerySet":
        """Those that the user may capture and void: the payee's; where none was named, the payer's."""
        own = Account.objects.owned_by(user_id).values("pk")
        return self.filter(Q(to_account__in=own) | Q(to_account=None, account__in=own))


class Hold(models.Model):
    """A promise to pay: its HOLD transaction has set money of a wallet aside, which goes to a payee or comes back.

    How much is left is the ledger's to say (`ledger.models.HeldMoney`); what the promise is, and how it ended, stands
    here. Invariants, and what holds each:
    - it is of a HOLD transaction, its wallet and its time: trigger `hold_fits_transaction`; and each such transaction
      has one: `hold_matches_money`;
    - the payee, if one is named, is another open wallet in the same currency: trigger `hold_fits_payee`;
    - it is ACTIVE as long as there is money left, and no longer, judged at COMMIT: trigger `hold_matches_money`;
    - it ends once: `hold_is_final`; gives back once: `hold_released_once`; by a CAPTURE or a RELEASE, and at its time:
      `hold_matches_ending`;
    - it expires neither early nor late: `hold_ended_in_time`; nothing is captured at `expires_at` or later:
      `hold_not_expired`;
    - only the payee gets the money; where none was named, anybody but the payer: `hold_captured_by_payee`; and where
      the payer names the payee at last, no freeze stands on the payer: `hold_payer_not_frozen`;
    - what it is never changes: `hold_is_fixed`; none is deleted: `hold_is_kept`.
    """

    class Status(models.TextChoices):
        ACTIVE = "ACTIVE", "Active"
        CAPTURED = "CAPTURED", "Captured"
        VOIDED = "VOIDED", "Voided"
        EXPIRED = "EXPIRED", "Expired"

    DEFAULT_LIFE = timedelta(days=7)
    LONGEST_LIFE = timedelta(days=30)

    transaction = models.OneToOneField(JournalTransaction, on_delete=models.PROTECT, primary_key=True, related_name="+")
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+", db_index=False)
    to_account = models.ForeignKey(
        Account, on_delete=models.PROTECT, null=True, blank=True, related_name="+", db_index=False
    )
    status = models.CharField(max_length=8, choices=Status, default=Status.ACTIVE, db_default=Status.ACTIVE)
    expires_at = models.DateTimeField()
    ended_by = models.ForeignKey(
        JournalTransaction, on_delete=models.PROTECT, null=True, blank=True, related_name="+", db_index=False
    )
    ended_at = models.DateTimeField(null=True, blank=True)
    stuck_at = models.DateTimeField(null=True, blank=True)  # when staff were told that it could not be released
    created_at = models.DateTimeField(db_default=TransactionNow())

    objects = HoldQuerySet.as_manager()

    class Meta:
        db_table = "hold"
        constraints = [
            models.CheckConstraint(
                name="hold_status_known", condition=Q(status__in=["ACTIVE", "CAPTURED", "VOIDED", "EXPIRED"])
            ),
            models.CheckConstraint(
                name="hold_ended_when",
                condition=Q(status="ACTIVE", ended_by=None, ended_at=None)
                | ~Q(status="ACTIVE") & Q(ended_by__isnull=False, ended_at__isnull=False),
            ),
            models.CheckConstraint(
                name="hold_ended_in_time",
                condition=~Q(status__in=["CAPTURED", "EXPIRED"])
                | Q(status="CAPTURED", ended_at__lt=F("expires_at"))
                | Q(status="EXPIRED", ended_at__gte=F("expires_at")),
            ),
            models.CheckConstraint(
                name="hold_expires_in_time",
                # The service allows 30 days by its own clock; the day more is for clocks that differ.
                condition=Q(expires_at__gt=F("created_at"), expires_at__lte=F("created_at") + timedelta(days=31)),
            ),
        ]
        indexes = [
            # What a wallet has set aside, newest first.
            models.Index(name="hold_of_payer", fields=["account", "-transaction"]),
            # What a wallet is promised, newest first.
            models.Index(name="hold_of_payee", fields=["to_account", "-transaction"], condition=~Q(to_account=None)),
            # What the sweep must release; nearly all rows have ended.
            models.Index(name="hold_due", fields=["expires_at"], condition=Q(status="ACTIVE")),
            # The admin's list by status, newest first.
            models.Index(name="hold_by_status", fields=["status", "-transaction"]),
        ]

    def __str__(self) -> str:
        return f"hold {self.pk}"
