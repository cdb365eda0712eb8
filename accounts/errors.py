"""Refusals of sign-up and of the account model."""

from wallet_project.kernel.db import LostRace
from wallet_project.kernel.errors import DomainError, FieldError, IllegalState, InvalidRequest, NotFound


class AccountNotFound(NotFound):
    """No such account for this caller; somebody else's, a system account and a shard answer the same."""


class TierNotFound(NotFound):
    """No such tier in the wallet's currency."""


class TierExists(IllegalState):
    """There is a tier of that name in that currency, and tiers never change."""

    def __init__(self, detail: str = "There is a tier of that name in that currency; tiers never change.") -> None:
        super().__init__(detail)


class UsernameTaken(InvalidRequest):
    """Somebody has that name already."""

    def __init__(self) -> None:
        field = FieldError(field="username", code="taken", detail="That username is taken.")
        super().__init__("The username is taken.", fields=[field])


class PasswordRefused(InvalidRequest):
    """The password is too weak; `fields` says why."""

    def __init__(self, reasons: list[str]) -> None:
        fields = [FieldError(field="password", code="too_weak", detail=reason) for reason in reasons]
        super().__init__("The password is too weak.", fields=fields)


CONSTRAINTS: dict[str, type[DomainError] | type[LostRace]] = {
    "tier_name_unique": TierExists,
    "account_tier_fits": TierNotFound,
}
