"""How commands are answered: first, and again."""

from typing import Any

from rest_framework.response import Response

from transfers.services import Answer


def respond(body: dict[str, Any], *, status: int, replayed: bool) -> Response:
    return Response(body, status=status, headers={"Idempotent-Replayed": "true"} if replayed else None)


def respond_with(answer: Answer) -> Response:
    return respond(answer.body, status=answer.status, replayed=answer.replayed)
