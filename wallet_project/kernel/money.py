"""Money is an integer in a currency's minor units: đồng for VND, cents for USD. Never a float or Decimal on the way."""

from decimal import Decimal

from babel.numbers import format_currency, get_currency_precision

# The largest amount of one request and the largest balance of a wallet: every JSON client reads it exactly.
MAX_AMOUNT = 2**53 - 1


def format_amount(amount: int, currency: str, *, locale: str = "en") -> str:
    """An amount of minor units as people write it: `format_amount(123456, "USD")` is `$1,234.56`."""
    value = Decimal(amount).scaleb(-get_currency_precision(currency))
    return format_currency(value, currency, locale=locale)
