"""Bank orders, their moves, what was returned of them, and the bank's notices. Their rules: 0004."""

import django.contrib.postgres.functions
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import F, Q
from django.db.models.functions import Cast, Replace

import wallet_project.kernel.clock

STATUSES = [
    ("PENDING", "Pending"),
    ("SUBMITTED", "Submitted"),
    ("UNKNOWN", "Unknown"),
    ("COMPLETED", "Completed"),
    ("FAILED", "Failed"),
]
CAUSES = [
    ("REQUEST", "Asked for by the customer"),
    ("SUBMIT", "About to be sent to the bank"),
    ("ANSWER", "The bank's answer"),
    ("NO_ANSWER", "The bank did not answer"),
    ("NOTICE", "The bank's notice"),
]
OUTCOMES = [
    ("APPLIED", "Applied"),
    ("REPEATED", "Known already"),
    ("WAITING", "Came before its time"),
    ("UNKNOWN_REFERENCE", "Of no order of ours"),
    ("ILLEGAL_MOVE", "Not in the order's state"),
    ("MISMATCH", "Another amount or currency"),
]


def _number() -> models.BigAutoField:
    return models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")


def _now() -> models.DateTimeField:
    return models.DateTimeField(db_default=django.contrib.postgres.functions.TransactionNow())


def _to(model: str, related_name: str = "+", **more: object) -> models.ForeignKey:
    return models.ForeignKey(
        db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name=related_name, to=model, **more
    )


def _transaction(**more: object) -> models.OneToOneField:
    return models.OneToOneField(
        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="ledger.journaltransaction", **more
    )


def _text(length: int) -> models.CharField:
    return models.CharField(blank=True, db_default="", default="", max_length=length)


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_rules"),
        ("ledger", "0003_rules"),
        ("transfers", "0002_holds"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="BankOrder",
            fields=[
                (
                    "id",
                    models.UUIDField(default=wallet_project.kernel.clock.new_id, primary_key=True, serialize=False),
                ),
                (
                    "kind",
                    models.CharField(choices=[("DEPOSIT", "Deposit"), ("WITHDRAWAL", "Withdrawal")], max_length=10),
                ),
                ("amount", models.BigIntegerField()),
                ("destination", _text(64)),
                ("reference", _text(140)),
                (
                    "bank_reference",
                    models.GeneratedField(
                        db_persist=True,
                        expression=Replace(
                            Cast("id", models.TextField()),
                            models.Value("-"),
                            models.Value(""),
                            output_field=models.TextField(),
                        ),
                        output_field=models.CharField(max_length=64),
                        unique=True,
                    ),
                ),
                (
                    "status",
                    models.CharField(choices=STATUSES, db_default="PENDING", default="PENDING", max_length=9),
                ),
                ("returned", models.BigIntegerField(db_default=0, default=0)),
                ("attempts", models.IntegerField(db_default=0, default=0)),
                (
                    "next_step_at",
                    models.DateTimeField(
                        blank=True, db_default=django.contrib.postgres.functions.TransactionNow(), null=True
                    ),
                ),
                ("stuck_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", _now()),
                (
                    "waiting_since",
                    models.GeneratedField(
                        db_persist=True,
                        expression=models.Case(
                            models.When(status__in=["PENDING", "SUBMITTED", "UNKNOWN"], then=F("created_at"))
                        ),
                        output_field=models.DateTimeField(null=True),
                    ),
                ),
                ("account", _to("accounts.account")),
                ("initiator", _to(settings.AUTH_USER_MODEL)),
                ("opening", _transaction(blank=True, null=True)),
            ],
            options={
                "db_table": "bank_order",
                "permissions": [("ask_bank", "Can ask the bank about orders")],
                "indexes": [
                    models.Index(
                        condition=Q(next_step_at__isnull=False), fields=["next_step_at"], name="bank_order_due"
                    ),
                    models.Index(fields=["waiting_since", "-id"], name="bank_order_waiting"),
                    models.Index(fields=["status", "waiting_since", "-id"], name="bank_order_by_status"),
                    models.Index(fields=["account", "status"], name="bank_order_of_account"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(kind__in=["DEPOSIT", "WITHDRAWAL"]), name="bank_order_kind_known"
                    ),
                    models.CheckConstraint(
                        condition=Q(status__in=[status for status, _ in STATUSES]), name="bank_order_status_known"
                    ),
                    models.CheckConstraint(
                        condition=Q(amount__gte=1, amount__lte=2**53 - 1), name="bank_order_amount_positive"
                    ),
                    models.CheckConstraint(
                        condition=Q(kind="DEPOSIT", opening=None, destination="")
                        | Q(kind="WITHDRAWAL", opening__isnull=False, opening=F("id")) & ~Q(destination=""),
                        name="bank_order_fits_kind",
                    ),
                    models.CheckConstraint(
                        condition=Q(returned__gte=0, returned__lte=F("amount")),
                        name="bank_order_returned_within_amount",
                    ),
                    models.CheckConstraint(
                        condition=Q(status__in=["COMPLETED", "FAILED"]) | Q(next_step_at__isnull=False),
                        name="bank_order_open_has_next_step",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="BankOrderChange",
            fields=[
                ("id", _number()),
                ("from_status", models.CharField(blank=True, max_length=9, null=True)),
                ("to_status", models.CharField(max_length=9)),
                ("cause", models.CharField(choices=CAUSES, max_length=9)),
                ("detail", _text(500)),
                ("happened_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", _now()),
                ("order", _to("transfers.bankorder", "changes")),
                ("transaction", _transaction(blank=True, null=True)),
            ],
            options={
                "db_table": "bank_order_change",
                "indexes": [models.Index(fields=["order", "id"], name="bank_order_change_of_order")],
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(from_status=None, to_status__in=["PENDING"])
                        | Q(from_status__isnull=False)
                        & (
                            Q(from_status="PENDING", to_status__in=["SUBMITTED"])
                            | Q(from_status="SUBMITTED", to_status__in=["COMPLETED", "FAILED", "UNKNOWN"])
                            | Q(from_status="UNKNOWN", to_status__in=["COMPLETED", "FAILED", "SUBMITTED"])
                        ),
                        name="bank_order_move_legal",
                    ),
                    models.CheckConstraint(
                        condition=Q(cause__in=[cause for cause, _ in CAUSES]), name="bank_order_change_cause_known"
                    ),
                    models.UniqueConstraint(
                        condition=Q(from_status=None), fields=["order"], name="bank_order_begins_once"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="BankReturn",
            fields=[
                ("id", _number()),
                ("return_id", models.CharField(max_length=64)),
                ("amount", models.BigIntegerField()),
                ("cause", models.CharField(choices=CAUSES, max_length=9)),
                ("happened_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", _now()),
                ("order", _to("transfers.bankorder", "returns")),
                ("transaction", _transaction()),
            ],
            options={
                "db_table": "bank_return",
                "constraints": [
                    models.UniqueConstraint(fields=["order", "return_id"], name="bank_return_once"),
                    models.CheckConstraint(condition=Q(amount__gt=0), name="bank_return_amount_positive"),
                    models.CheckConstraint(condition=~Q(return_id=""), name="bank_return_named"),
                    models.CheckConstraint(condition=Q(cause__in=["ANSWER", "NOTICE"]), name="bank_return_cause_known"),
                ],
            },
        ),
        migrations.CreateModel(
            name="BankNotice",
            fields=[
                ("id", _number()),
                ("notice_id", models.CharField(max_length=64, unique=True)),
                ("reference", models.CharField(max_length=64)),
                ("event", models.CharField(max_length=8)),
                ("amount", models.BigIntegerField()),
                ("currency", models.CharField(max_length=3)),
                ("return_id", _text(64)),
                ("reason", _text(500)),
                ("occurred_at", models.DateTimeField()),
                ("body", models.BinaryField()),
                ("outcome", models.CharField(choices=OUTCOMES, max_length=17)),
                ("created_at", _now()),
                ("order", _to("transfers.bankorder", "notices", blank=True, null=True)),
            ],
            options={
                "db_table": "bank_notice",
                "indexes": [
                    models.Index(fields=["order", "id"], name="bank_notice_of_an_order"),
                    models.Index(fields=["outcome", "-id"], name="bank_notice_by_outcome"),
                    models.Index(fields=["reference"], name="bank_notice_by_reference"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(outcome__in=[outcome for outcome, _ in OUTCOMES]), name="bank_notice_outcome_known"
                    ),
                    models.CheckConstraint(
                        condition=Q(order=None, outcome="UNKNOWN_REFERENCE")
                        | Q(order__isnull=False) & ~Q(outcome="UNKNOWN_REFERENCE"),
                        name="bank_notice_of_order",
                    ),
                ],
            },
        ),
    ]
