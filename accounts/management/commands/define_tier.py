"""A tier, made by hand."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.services import define_tier
from wallet_project.kernel.errors import DomainError
from wallet_project.kernel.money import MAX_AMOUNT


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
        given = [limit for limit in limits.values() if limit is not None]
        if not given or not all(1 <= limit <= MAX_AMOUNT for limit in given):
            raise CommandError(f"Give at least one limit, of 1 to {MAX_AMOUNT}.")
        if given != sorted(given):
            raise CommandError("The limit of a day is no smaller than that of one payment.")
        try:
            tier = define_tier(name=options["name"], currency=options["currency"], **limits)
        except DomainError as refusal:
            raise CommandError(refusal.detail) from refusal
        self.stdout.write(f"Tier {tier} is defined.")
