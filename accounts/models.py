"""Users, the accounts of the book, and freezes.

The rules that plain constraints cannot express are triggers in `migrations/0002_rules.py`; the test of each rule
attacks it with raw SQL.
"""

from typing import Any

from django.contrib.auth.models import AbstractUser
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.contrib.postgres.functions import TransactionNow
from django.core.validators import MinLengthValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower

from wallet_project.kernel import clock
from wallet_project.kernel.money import MAX_AMOUNT


class CurrencyField(models.CharField):  # type: ignore[type-arg]  # Django's own class takes none at runtime.
    """An ISO 4217 code, in exactly three characters."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"max_length": 3, **kwargs})

    def db_type(self, connection: object) -> str:
        return "char(3)"


class User(AbstractUser):
    """Somebody who signs in: a customer, a member of staff, or the inactive user `system` that owns system accounts."""

    SYSTEM = "system"

    username = models.CharField(
        max_length=64,
        unique=True,
        validators=[MinLengthValidator(3), UnicodeUsernameValidator()],
        error_messages={"unique": "A user with that username already exists."},
    )

    class Meta:
        db_table = "wallet_user"
        constraints = [
            # Nobody signs up as `Finance` beside `finance`; signing in still takes the name as it was given.
            models.UniqueConstraint(Lower("username"), name="wallet_user_name_ignoring_case"),
        ]


class AccountQuerySet(models.QuerySet["Account"]):
    def wallets(self) -> "AccountQuerySet":
        """What clients may know of: users' accounts, never system accounts or shards."""
        return self.filter(kind=Account.Kind.WALLET, parent=None)

    def owned_by(self, user_id: int) -> "AccountQuerySet":
        return self.wallets().filter(owner_id=user_id)

    def with_frozen(self) -> "AccountQuerySet":
        """Annotates `frozen`: whether an open freeze stands on the account itself."""
        open_freeze = Freeze.objects.filter(account_id=models.OuterRef("pk"), thaw=None)
        return self.annotate(frozen=models.Exists(open_freeze))


class Tier(models.Model):
    """What a wallet of this tier may pay out at most, in minor units; a limit that is null is none.

    What counts are transfers, holds and withdrawals; the ledger keeps the count. A tier never changes, so that a
    refusal can be understood later: trigger `tier_is_kept`. Other figures are another tier.
    """

    name = models.CharField(max_length=64)
    currency = CurrencyField()
    single_limit = models.BigIntegerField(null=True, blank=True)  # of one transaction
    daily_limit = models.BigIntegerField(null=True, blank=True)  # of all on one business date
    created_at = models.DateTimeField(db_default=TransactionNow())

    class Meta:
        db_table = "tier"
        constraints = [
            models.UniqueConstraint(name="tier_name_unique", fields=["name", "currency"]),
            models.CheckConstraint(
                name="tier_limits_positive",
                condition=(Q(single_limit=None) | Q(single_limit__gt=0)) & (Q(daily_limit=None) | Q(daily_limit__gt=0)),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.currency}"


class Account(models.Model):
    """An account of the book; a wallet is a user's account.

    Invariants, and what holds each:
    - the balance moves only through an entry: triggers `account_balance_by_entry`, `account_opens_empty`;
    - no balance below zero: `account_balance_not_negative`; but of system accounts: `account_negative_if_system`;
    - a wallet's balance stays exact for every JSON client: `account_balance_within_maximum`;
    - owner, currency, kind, parent, shard and allow_negative never change: trigger `account_identity_is_fixed`;
    - no account is ever deleted: trigger `account_is_kept`;
    - a shard belongs to a family of its own kind, owner and currency: trigger `account_shard_matches_parent`;
    - a tier is a wallet's, in its currency: trigger `account_tier_fits`.

    Amounts are in minor units of the currency. CLOSED is final; FROZEN is not stored: it is who has an open freeze.
    """

    class Kind(models.TextChoices):
        WALLET = "WALLET", "Wallet"
        BANK_CLEARING = "BANK_CLEARING", "Bank clearing"
        RECEIVABLE = "RECEIVABLE", "Receivable"
        HOLD = "HOLD", "Hold"
        SUSPENSE = "SUSPENSE", "Suspense"

    class Status(models.TextChoices):
        ACTIVE = "ACTIVE", "Active"
        CLOSED = "CLOSED", "Closed"

    MAY_BE_NEGATIVE = (Kind.BANK_CLEARING, Kind.RECEIVABLE)

    owner = models.ForeignKey(User, on_delete=models.PROTECT, related_name="accounts")
    currency = CurrencyField()
    balance = models.BigIntegerField(default=0, db_default=0)
    allow_negative = models.BooleanField(default=False, db_default=False)
    kind = models.CharField(max_length=16, choices=Kind, default=Kind.WALLET, db_default=Kind.WALLET)
    status = models.CharField(max_length=8, choices=Status, default=Status.ACTIVE, db_default=Status.ACTIVE)
    name = models.CharField(max_length=100, blank=True, default="", db_default="")
    parent = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="shards", db_index=False
    )
    shard_no = models.SmallIntegerField(null=True, blank=True)
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT, null=True, blank=True, related_name="+", db_index=False)
    last_entry_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=TransactionNow())

    objects = AccountQuerySet.as_manager()

    class Meta:
        db_table = "account"
        permissions = [("freeze_account", "Can freeze and thaw accounts")]
        constraints = [
            models.CheckConstraint(
                name="account_balance_not_negative", condition=Q(allow_negative=True) | Q(balance__gte=0)
            ),
            models.CheckConstraint(
                name="account_balance_within_maximum",
                condition=~Q(kind="WALLET") | Q(balance__lte=MAX_AMOUNT),
            ),
            models.CheckConstraint(
                name="account_negative_if_system",
                condition=Q(allow_negative=False) | Q(kind__in=["BANK_CLEARING", "RECEIVABLE"]),
            ),
            models.CheckConstraint(
                name="account_kind_known",
                condition=Q(kind__in=["WALLET", "BANK_CLEARING", "RECEIVABLE", "HOLD", "SUSPENSE"]),
            ),
            models.CheckConstraint(name="account_status_known", condition=Q(status__in=["ACTIVE", "CLOSED"])),
            models.CheckConstraint(name="account_closed_is_empty", condition=~Q(status="CLOSED") | Q(balance=0)),
            models.CheckConstraint(name="account_system_stays_open", condition=Q(status="ACTIVE") | Q(kind="WALLET")),
            models.CheckConstraint(name="account_currency_is_code", condition=Q(currency__regex=r"^[A-Z]{3}$")),
            models.CheckConstraint(
                name="account_shard_numbered",
                # A comparison with null is no refusal, so that a shard has a number is said in so many words.
                condition=Q(parent=None, shard_no=None)
                | Q(parent__isnull=False, shard_no__isnull=False, shard_no__gte=0),
            ),
            # Also the way from a parent to its shards.
            models.UniqueConstraint(name="account_shard_unique", fields=["parent", "shard_no"]),
            models.UniqueConstraint(
                name="account_system_family_unique",
                fields=["kind", "currency"],
                condition=~Q(kind="WALLET") & Q(parent=None),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"


class Freeze(models.Model):
    """A stop on an account's outflow, with its cause and maker. It is open until a Thaw refers to it.

    Append-only: trigger `freeze_is_kept`. While one is open, only REVERSAL, CHARGEBACK and CONSOLIDATION may
    take money out: trigger `ledger_entry_account_not_frozen`.
    """

    class Cause(models.TextChoices):
        STAFF = "STAFF", "Staff"
        CHARGEBACK = "CHARGEBACK", "Chargeback"

    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="freezes")
    cause = models.CharField(max_length=16, choices=Cause)
    reason = models.CharField(max_length=500)
    made_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(db_default=TransactionNow())

    class Meta:
        db_table = "account_freeze"
        constraints = [
            models.CheckConstraint(name="freeze_cause_known", condition=Q(cause__in=["STAFF", "CHARGEBACK"])),
            models.CheckConstraint(name="freeze_reason_given", condition=~Q(reason="")),
        ]

    def __str__(self) -> str:
        return f"freeze {self.pk}"


class SignIn(models.Model):
    """One device's stay: from a sign-in until its logout, its expiry, or the second use of a refresh token.

    Its refresh token rotates; `token_id` names the only one that is alive, so a used one is known as used.
    """

    id = models.UUIDField(primary_key=True, default=clock.new_id)
    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    token_id = models.CharField(max_length=32)
    created_at = models.DateTimeField(db_default=TransactionNow())
    expires_at = models.DateTimeField(db_index=True)  # The purge of what has expired.
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "sign_in"

    def __str__(self) -> str:
        return f"sign-in {self.pk}"


class Thaw(models.Model):
    """The end of one freeze. Append-only: trigger `thaw_is_kept`; once per freeze: its primary key."""

    freeze = models.OneToOneField(Freeze, on_delete=models.PROTECT, primary_key=True, related_name="thaw")
    reason = models.CharField(max_length=500)
    made_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(db_default=TransactionNow())

    class Meta:
        db_table = "account_thaw"
        constraints = [models.CheckConstraint(name="thaw_reason_given", condition=~Q(reason=""))]

    def __str__(self) -> str:
        return f"thaw of {self.freeze_id}"
