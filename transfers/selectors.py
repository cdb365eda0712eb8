"""Readers for the API and the admin: values in the API's own words."""

from typing import Any

from accounts.models import Account
from wallet_project.kernel import clock


def account_body(account: Account) -> dict[str, Any]:
    """An account as the API shows it; amounts in minor units."""
    frozen = getattr(account, "frozen", False)
    return {
        "accountId": account.pk,
        "name": account.name,
        "currency": account.currency,
        "balance": account.balance,
        "heldBalance": 0,
        "availableBalance": 0 if frozen else account.balance,
        "status": "FROZEN" if frozen else account.status,
        "createdAt": clock.rfc3339(account.created_at),
    }
