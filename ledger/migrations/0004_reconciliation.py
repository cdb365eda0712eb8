"""Runs of the reconciliation and their findings: history like the book itself."""

import django.contrib.postgres.functions
import django.db.models.deletion
from django.db import migrations, models

KEPT = """
CREATE TRIGGER reconciliation_run_is_final BEFORE UPDATE ON reconciliation_run
    FOR EACH ROW WHEN (OLD.status IN ('CLEAN', 'FINDINGS'))
    EXECUTE FUNCTION refuse_change('reconciliation_run_is_final');
CREATE TRIGGER reconciliation_run_is_kept BEFORE DELETE ON reconciliation_run
    FOR EACH ROW EXECUTE FUNCTION refuse_change('reconciliation_run_is_kept');
CREATE TRIGGER reconciliation_run_is_not_truncated BEFORE TRUNCATE ON reconciliation_run
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('reconciliation_run_is_kept');
CREATE TRIGGER reconciliation_finding_is_kept BEFORE UPDATE OR DELETE ON reconciliation_finding
    FOR EACH ROW EXECUTE FUNCTION refuse_change('reconciliation_finding_is_kept');
CREATE TRIGGER reconciliation_finding_is_not_truncated BEFORE TRUNCATE ON reconciliation_finding
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('reconciliation_finding_is_kept');
"""

UNDO_KEPT = """
DROP TRIGGER reconciliation_finding_is_not_truncated ON reconciliation_finding;
DROP TRIGGER reconciliation_finding_is_kept ON reconciliation_finding;
DROP TRIGGER reconciliation_run_is_not_truncated ON reconciliation_run;
DROP TRIGGER reconciliation_run_is_kept ON reconciliation_run;
DROP TRIGGER reconciliation_run_is_final ON reconciliation_run;
"""


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
                (
                    "progress_at",
                    models.DateTimeField(db_default=django.contrib.postgres.functions.TransactionNow()),
                ),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("attempt", models.IntegerField(db_default=1, default=1)),
                ("transactions_checked", models.BigIntegerField(db_default=0, default=0)),
                ("accounts_checked", models.BigIntegerField(db_default=0, default=0)),
            ],
            options={
                "db_table": "reconciliation_run",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("status__in", ["RUNNING", "CLEAN", "FINDINGS", "FAILED"])),
                        name="reconciliation_run_status_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("finished_at", None), ("status", "RUNNING")),
                            models.Q(models.Q(("status", "RUNNING"), _negated=True), ("finished_at__isnull", False)),
                            _connector="OR",
                        ),
                        name="reconciliation_run_finished_when",
                    ),
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
                            ("BALANCE_AFTER", "Balance after an entry is not the sum up to it"),
                            ("HELD_MONEY", "A HOLD account is not what its openings have left"),
                            ("GUARD", "What holds a rule is missing, altered or switched off"),
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
        migrations.RunSQL(KEPT, UNDO_KEPT),
    ]
