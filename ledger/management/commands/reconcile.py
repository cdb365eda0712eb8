"""The reconciliation, by hand."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from ledger.models import ReconciliationRun
from ledger.reconciliation import TakenOver, reconcile

EXIT_FINDINGS = 1
EXIT_NOT_CARRIED_OUT = 2


class Command(BaseCommand):
    help = (
        "Checks the whole book now, and repairs nothing."
        f" Exit code: 0 clean, {EXIT_FINDINGS} findings, {EXIT_NOT_CARRIED_OUT} could not run."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            run = reconcile()
        except (Error, TakenOver) as error:
            raise CommandError(
                f"the check could not be carried out: {error!r}", returncode=EXIT_NOT_CARRIED_OUT
            ) from error
        findings = list(run.findings.order_by("pk"))
        for finding in findings:
            self.stdout.write(f"{finding.check_name}: {finding}")
        self.stdout.write(_summary(run))
        if findings:
            raise CommandError(f"{len(findings)} findings", returncode=EXIT_FINDINGS)


def _summary(run: ReconciliationRun) -> str:
    assert run.finished_at is not None  # noqa: S101  `reconcile` returns finished runs.
    seconds = (run.finished_at - run.started_at).total_seconds()
    return (
        f"Reconciliation {run.pk}: {run.status}. {run.transactions_checked} transactions and"
        f" {run.accounts_checked} accounts checked in {seconds:.1f} s."
    )
