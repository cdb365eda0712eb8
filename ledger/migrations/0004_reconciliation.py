"""Runs of the reconciliation and their findings."""

import django.contrib.postgres.functions
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ledger", "0003_rules"), ("accounts", "0002_rules")]

    operations = [
        migrations.CreateModel(
            name="ReconciliationRun",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("business_date", models.DateField(blank=True, null=True, unique=True)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("RUNNING", "Running"),
                            ("CLEAN", "Clean"),
                            ("FINDINGS", "Findings"),
                            ("FAILED", "Failed"),
                        ],
                        db_default="RUNNING",
                        default="RUNNING",
                        max_length=8,
                    ),
                ),
                (
                    "started_at",
                    models.DateTimeField(db_default=django.contrib.postgres.functions.TransactionNow()),
                ),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("transactions_checked", models.BigIntegerField(db_default=0, default=0)),
                ("accounts_checked", models.BigIntegerField(db_default=0, default=0)),
            ],
            options={
                "db_table": "reconciliation_run",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("status__in", ["RUNNING", "CLEAN", "FINDINGS", "FAILED"])),
                        name="reconciliation_run_status_known",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ReconciliationFinding",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                (
                    "check_name",
                    models.CharField(
                        choices=[
                            ("TRANSACTION_SUM", "Entries of a transaction do not sum to zero"),
                            ("BOOK_SUM", "All entries of a currency do not sum to zero"),
                            ("ACCOUNT_BALANCE", "Balance is not the sum of the account's entries"),
                            ("LAST_BALANCE_AFTER", "Balance is not the last entry's balance after"),
                            ("GUARD", "A trigger that holds a rule is missing or switched off"),
                        ],
                        max_length=32,
                    ),
                ),
                ("currency", models.CharField(blank=True, max_length=3)),
                ("expected", models.BigIntegerField(blank=True, null=True)),
                ("actual", models.BigIntegerField(blank=True, null=True)),
                ("detail", models.CharField(blank=True, max_length=200)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.contrib.postgres.functions.TransactionNow()),
                ),
                (
                    "account",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="accounts.account",
                    ),
                ),
                (
                    "transaction",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="ledger.journaltransaction",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="findings",
                        to="ledger.reconciliationrun",
                    ),
                ),
            ],
            options={
                "db_table": "reconciliation_finding",
            },
        ),
    ]
