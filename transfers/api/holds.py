"""Holds: reserving, capturing, voiding, and looking."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.authentication import caller_of
from transfers.api.answers import respond_with
from transfers.hold_selectors import hold_of, holds_page
from transfers.services import capture, reserve, void
from wallet_project.kernel.api import idempotency_key
from wallet_project.kernel.fields import AmountField, FlagField, IdField, MomentField, NumberField, StrictSerializer
from wallet_project.kernel.query import PageQuery, read_query
from wallet_project.kernel.views import ApiViewSet


class ReserveSerializer(StrictSerializer):
    account_id = IdField(help_text="A wallet of the caller's.")
    amount = AmountField(help_text="In the currency's smallest unit: đồng, cents.")
    to_account_id = IdField(
        required=False, allow_null=True, help_text="Who alone may take it. Left out: the capture says who gets it."
    )
    expires_at = MomentField(
        required=False,
        allow_null=True,
        help_text="When it comes back by itself: an instant to come, at most 30 days ahead. Left out: in 7 days.",
    )


class CaptureSerializer(StrictSerializer):
    amount = AmountField(required=False, allow_null=True, help_text="Left out: all that is left.")
    to_account_id = IdField(
        required=False, allow_null=True, help_text="Who gets it; needed where the hold names nobody."
    )
    final = FlagField(required=False, help_text="True: what is left after this goes back to the payer.")


class VoidSerializer(StrictSerializer):
    """Nothing but the hold's id in the path."""


class HoldsQuery(PageQuery):
    account_id = NumberField(required=False, help_text="A wallet of the caller's; left out: all of them.")


RESERVE = ReserveSerializer()
CAPTURE = CaptureSerializer()
VOID = VoidSerializer()
HOLDS = HoldsQuery()


class HoldViewSet(ApiViewSet):
    """Money of the caller's that is set aside, and money that the caller is promised."""

    bodiless = frozenset({"capture", "void"})

    def create(self, request: Request) -> Response:
        key = idempotency_key(request)
        return respond_with(reserve(caller=caller_of(request), key=key, **RESERVE.parse(self.body)))

    def list(self, request: Request) -> Response:
        query = HOLDS.parse(read_query(request))
        return Response(holds_page(owner_id=caller_of(request).user_id, **query))

    def retrieve(self, request: Request, hold_id: UUID) -> Response:
        return Response(hold_of(hold_id, user_id=caller_of(request).user_id))

    def capture(self, request: Request, hold_id: UUID) -> Response:
        key = idempotency_key(request)
        return respond_with(capture(caller=caller_of(request), key=key, hold_id=hold_id, **CAPTURE.parse(self.body)))

    def void(self, request: Request, hold_id: UUID) -> Response:
        key = idempotency_key(request)
        return respond_with(void(caller=caller_of(request), key=key, hold_id=hold_id, **VOID.parse(self.body)))
