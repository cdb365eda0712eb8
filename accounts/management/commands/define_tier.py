"""A tier, made by hand."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.services import define_tier
from wallet_project.kernel.errors import DomainError


class Command(BaseCommand):
    help = (
        "Defines a tier: what a wallet may pay out at once, and in a business day, in minor units."
        " A tier never changes; for other figures define another and give the wallets that one (set_tier)."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("currency", choices=settings.CURRENCIES)
        parser.add_argument("--single", type=int, help="the most at once; left out: no such limit")
        parser.add_argument("--daily", type=int, help="the most in a business day; left out: no such limit")

    def handle(self, *args: Any, **options: Any) -> None:
        limits = {"single_limit": options["single"], "daily_limit": options["daily"]}
        if any(limit is not None and limit < 1 for limit in limits.values()):
            raise CommandError("A limit is at least 1.")
        try:
            tier = define_tier(name=options["name"], currency=options["currency"], **limits)
        except DomainError as refusal:
            raise CommandError(refusal.detail) from refusal
        self.stdout.write(f"Tier {tier} is defined.")
