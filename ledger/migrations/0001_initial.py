"""The journal, the keys, and what triggers count: reversals, money on hold, outflow. Entries: 0002; the rules: 0003."""

import django.contrib.postgres.functions
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import wallet_project.kernel.clock


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="JournalTransaction",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        db_default=models.Func(function="gen_random_uuid"),
                        default=wallet_project.kernel.clock.new_id,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("idempotency_key", models.CharField(max_length=64)),
                ("type", models.CharField(max_length=32)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.contrib.postgres.functions.TransactionNow()),
                ),
                ("fingerprint", models.BinaryField(db_default=models.Value(b""), default=b"")),
                ("response", models.JSONField(blank=True, null=True)),
                ("reference", models.CharField(blank=True, db_default="", default="", max_length=140)),
                ("metadata", models.JSONField(blank=True, null=True)),
                (
                    "initiator",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "reverses",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="reversals",
                        to="ledger.journaltransaction",
                    ),
                ),
                (
                    "continues",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="continuations",
                        to="ledger.journaltransaction",
                    ),
                ),
            ],
            options={
                "db_table": "journal_transaction",
                "permissions": [("reverse_journaltransaction", "Can reverse transactions")],
            },
        ),
        migrations.CreateModel(
            name="IdempotencyRecord",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "initiator", "key", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("key", models.CharField(max_length=64)),
                ("fingerprint", models.BinaryField()),
                ("status", models.SmallIntegerField()),
                ("response", models.TextField()),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.contrib.postgres.functions.TransactionNow()),
                ),
                (
                    "initiator",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "idempotency_record",
            },
        ),
        migrations.CreateModel(
            name="ReversalBudget",
            fields=[
                (
                    "transaction",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="reversal_budget",
                        serialize=False,
                        to="ledger.journaltransaction",
                    ),
                ),
                ("original", models.BigIntegerField()),
                ("reversed", models.BigIntegerField()),
            ],
            options={
                "db_table": "reversal_budget",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("reversed__gt", 0), ("reversed__lte", models.F("original"))),
                        name="reversal_within_original",
                    )
                ],
            },
        ),
        migrations.AddIndex(
            model_name="journaltransaction",
            index=models.Index(
                condition=models.Q(("reverses__isnull", False)), fields=["reverses"], name="journal_reverses"
            ),
        ),
        migrations.CreateModel(
            name="HeldMoney",
            fields=[
                (
                    "transaction",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="held_money",
                        serialize=False,
                        to="ledger.journaltransaction",
                    ),
                ),
                (
                    "account",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="accounts.account",
                    ),
                ),
                (
                    "hold_account",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="accounts.account",
                    ),
                ),
                ("amount", models.BigIntegerField()),
                ("spent", models.BigIntegerField(db_default=0, default=0)),
                ("released", models.BigIntegerField(db_default=0, default=0)),
            ],
            options={
                "db_table": "held_money",
                "indexes": [
                    models.Index(
                        condition=models.Q(("amount__gt", models.F("spent") + models.F("released"))),
                        fields=["account"],
                        name="held_money_open",
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("amount__gt", 0),
                            ("amount__gte", models.F("spent") + models.F("released")),
                            ("released__gte", 0),
                            ("spent__gte", 0),
                        ),
                        name="held_money_within_amount",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="AccountOutflow",
            fields=[
                (
                    "account",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="accounts.account",
                    ),
                ),
                ("business_date", models.DateField()),
                ("spent", models.BigIntegerField()),
                ("most", models.BigIntegerField(blank=True, null=True)),
            ],
            options={
                "db_table": "account_outflow",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("most", None), ("spent__lte", models.F("most")), _connector="OR"),
                        name="account_outflow_within_limit",
                    )
                ],
            },
        ),
        migrations.AddIndex(
            model_name="journaltransaction",
            index=models.Index(
                condition=models.Q(("continues__isnull", False)), fields=["continues"], name="journal_continues"
            ),
        ),
        migrations.AddIndex(
            model_name="journaltransaction",
            index=models.Index(fields=["created_at"], name="journal_created_at"),
        ),
        migrations.AddConstraint(
            model_name="journaltransaction",
            constraint=models.UniqueConstraint(
                fields=("initiator", "idempotency_key"), name="journal_key_unique", nulls_distinct=False
            ),
        ),
        migrations.AddConstraint(
            model_name="journaltransaction",
            constraint=models.CheckConstraint(
                condition=models.Q(("idempotency_key", ""), _negated=True), name="journal_key_given"
            ),
        ),
        migrations.AddConstraint(
            model_name="journaltransaction",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("reverses", None), models.Q(("type", "REVERSAL"), _negated=True)),
                    models.Q(("reverses__isnull", False), ("type", "REVERSAL")),
                    _connector="OR",
                ),
                name="journal_reversal_has_original",
            ),
        ),
        migrations.AddConstraint(
            model_name="journaltransaction",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("continues", None),
                        models.Q(("type__in", ["CAPTURE", "RELEASE", "SETTLEMENT"]), _negated=True),
                    ),
                    models.Q(("continues__isnull", False), ("type__in", ["CAPTURE", "RELEASE", "SETTLEMENT"])),
                    _connector="OR",
                ),
                name="journal_continues_opening",
            ),
        ),
    ]
