"""Amounts as people write them: each currency has its own number of decimals."""

import pytest

from wallet_project.kernel.money import MAX_AMOUNT, format_amount


@pytest.mark.parametrize(
    ("amount", "currency", "written"),
    [
        (123_456, "VND", "₫123,456"),  # none
        (123_456, "JPY", "¥123,456"),
        (123_456, "USD", "$1,234.56"),  # two
        (123_456, "EUR", "€1,234.56"),
        (123_456, "KWD", "KWD123.456"),  # three
        (0, "USD", "$0.00"),
        (1, "KWD", "KWD0.001"),
        (-5, "USD", "-$0.05"),
        (MAX_AMOUNT, "USD", "$90,071,992,547,409.91"),  # A float would be a cent off.
        (-MAX_AMOUNT, "KWD", "-KWD9,007,199,254,740.991"),
    ],
)
def test_english(amount: int, currency: str, written: str) -> None:
    assert format_amount(amount, currency).replace("\xa0", "") == written  # Versions of Babel space it differently.


@pytest.mark.parametrize(("currency", "written"), [("VND", "123.456\xa0₫"), ("USD", "1.234,56\xa0US$")])
def test_vietnamese(currency: str, written: str) -> None:
    assert format_amount(123_456, currency, locale="vi") == written


def test_the_largest_amount_is_what_a_double_holds_exactly() -> None:
    assert int(float(MAX_AMOUNT)) == MAX_AMOUNT
    assert float(MAX_AMOUNT + 1) == float(MAX_AMOUNT + 2)
