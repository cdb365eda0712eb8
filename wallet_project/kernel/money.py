"""Money is an integer in a currency's minor units: đồng for VND, cents for USD. Never a float or Decimal on the way."""

from decimal import Decimal

from babel.numbers import format_currency, get_currency_precision

# The largest amount of one request and the largest balance of a wallet: every JSON client reads it exactly.
MAX_AMOUNT = 2**53 - 1


def decimal_amount(amount: int, currency: str) -> Decimal:
    """An amount of minor units in the currency's own decimals: `decimal_amount(123456, "USD")` is 1234.56."""
    return Decimal(amount).scaleb(-get_currency_precision(currency))


def minor_units(amount: Decimal, currency: str) -> int:
    """The amount of minor units that somebody wrote in the currency's own decimals.

    Raises:
        ValueError: the currency has no such fractions.
    """
    scaled = amount.scaleb(get_currency_precision(currency))
    if scaled != scaled.to_integral_value():
        raise ValueError(f"{currency} has {get_currency_precision(currency)} decimals")
    return int(scaled)


def format_amount(amount: int, currency: str, *, locale: str = "en") -> str:
    """An amount of minor units as people write it: `format_amount(123456, "USD")` is `$1,234.56`."""
    return format_currency(decimal_amount(amount, currency), currency, locale=locale)
