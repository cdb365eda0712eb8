"""A wallet's tier, given by hand."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.services import set_tier
from wallet_project.kernel.errors import DomainError


class Command(BaseCommand):
    help = "Gives a wallet a tier (see define_tier), or takes it away."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("account_id", type=int)
        tier = parser.add_mutually_exclusive_group(required=True)
        tier.add_argument("name", nargs="?", help="of a tier in the wallet's currency")
        tier.add_argument("--none", action="store_true", help="no tier, and so no limit")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            account = set_tier(account_id=options["account_id"], name=options["name"])
        except DomainError as refusal:
            raise CommandError(refusal.detail) from refusal
        self.stdout.write(
            f"Account {account.pk} has the tier {account.tier.name}."
            if account.tier
            else f"Account {account.pk} has no tier."
        )
