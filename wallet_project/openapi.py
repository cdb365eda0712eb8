"""The OpenAPI document: what apps say of their calls (`api/schema.py`), and what all calls share.

drf-spectacular finds the addresses and reads the serializers; the rest is said in words. A call without a description,
and a description without a call, fail here: so the document is complete or there is none.
"""

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from threading import Lock
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.templatetags.static import static
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import append_meta
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.errors import IdempotencyKeyReused
from wallet_project import openapi_words as words
from wallet_project.exception_handler import status_of
from wallet_project.kernel import api, errors
from wallet_project.kernel.errors import DomainError
from wallet_project.kernel.openapi import Answer, Operation, Schema
from wallet_project.kernel.views import ApiViewSet

UI = "drf_spectacular_sidecar/swagger-ui-dist"

_making = Lock()


class DocumentViewSet(ApiViewSet):
    """The document, for programs and for people. It is no secret."""

    authentication_classes = ()
    permission_classes = ()

    def retrieve(self, request: Request) -> Response:
        return Response(document())

    def page(self, request: Request) -> HttpResponse:
        """Swagger UI, from our own files."""
        files = {"css": static(f"{UI}/swagger-ui.css"), "js": static(f"{UI}/swagger-ui-bundle.js")}
        return render(request._request, "swagger.html", files)


def document() -> Schema:
    """The document as plain values; made once per process, by one thread alone: drf-spectacular demands it."""
    with _making:
        return _document()


@cache
def _document() -> Schema:
    return WalletGenerator().get_schema(public=True)  # type: ignore[no-untyped-call]


class WalletGenerator(SchemaGenerator):
    """Adds what is not found in the code; paths are spelled as the API spells everything."""

    def coerce_path(self, path: str, method: str, view: Any) -> str:
        return re.sub(r"{(\w+)}", lambda match: "{" + _camel(match[1]) + "}", path)

    def get_schema(self, request: Any = None, public: bool = False) -> Schema:
        result: Schema = super().get_schema(request=request, public=public)  # type: ignore[no-untyped-call]
        missing = words.OPERATIONS.keys() - {
            f"{method.upper()} {path}" for path, methods in result["paths"].items() for method in methods
        }
        if missing:
            raise LookupError(f"described, but not there: {', '.join(sorted(missing))}")
        components = result["components"]
        components["schemas"] = dict(sorted({**components.get("schemas", {}), **words.SCHEMAS}.items()))
        components["parameters"] = words.PARAMETERS
        components["headers"] = words.HEADERS
        components["responses"] = {name: _problem_response(classes) for name, classes in words.RESPONSES.items()}
        components["examples"] = _examples_named_in(json.dumps([result["paths"], components["responses"]]))
        components["securitySchemes"] = words.SECURITY_SCHEMES
        result["info"]["description"] = words.ABOUT
        result["tags"] = words.TAGS
        return result


def _examples_named_in(text: str) -> Schema:
    """An example of each problem that the document refers to."""
    named = set(re.findall(r"#/components/examples/(\w+)", text))
    classes = {class_.code: class_ for class_ in _refusals() if class_.code in named}
    return {code: {"value": words.problem_example(classes[code])} for code in sorted(named)}


def _refusals(base: type[DomainError] = DomainError) -> Iterable[type[DomainError]]:
    """All classes that say a code of their own."""
    if "code" in vars(base):
        yield base
    for subclass in base.__subclasses__():
        yield from _refusals(subclass)


class WalletSchema(AutoSchema):
    """Makes an operation of a description."""

    def get_operation(self, path: str, path_regex: str, path_prefix: str, method: str, registry: Any) -> Schema:
        self.path, self.path_regex, self.path_prefix = path, path_regex, path_prefix
        self.method, self.registry = method, registry
        operation = words.OPERATIONS[f"{method} {path}"]
        described: Schema = {
            "operationId": operation.id,
            "tags": [operation.tag],
            "summary": operation.summary,
            "description": operation.description,
            "parameters": self._parameters(operation),
            "security": [{"bearer": []}] if self.view.authentication_classes else [],
            "responses": self._responses(operation),
        }
        if operation.body is not None:
            reference = self.resolve_serializer(operation.body, "request").ref
            content = {api.JSON: {"schema": reference, "example": operation.example}}
            described["requestBody"] = {"required": not operation.bodiless, "content": content}
        return described

    def _parameters(self, operation: Operation) -> list[Schema]:
        names = re.findall(r"{(\w+)}", self.path) + (["Idempotency-Key"] if operation.command else [])
        shared = [{"$ref": f"#/components/parameters/{name}"} for name in [*names, *operation.headers, "X-Request-ID"]]
        if operation.query is None:
            return shared
        mapped = self._map_serializer(operation.query, "request")
        return [
            *shared,
            *(
                {
                    "name": name,
                    "in": "query",
                    "required": name in mapped.get("required", []),
                    "description": schema.pop("description"),
                    "schema": _without_null(schema),
                }
                for name, schema in mapped["properties"].items()
            ),
        ]

    def _responses(self, operation: Operation) -> Schema:
        found = {status: _success(answer, operation) for status, answer in operation.answers.items()}
        by_status: dict[int, list[type[DomainError]]] = {}
        for class_ in dict.fromkeys(self._errors(operation)):
            by_status.setdefault(status_of(class_()), []).append(class_)
        for status, classes in by_status.items():
            name = next((name for name, shared in words.RESPONSES.items() if list(shared) == classes), None)
            found[status] = {"$ref": f"#/components/responses/{name}"} if name else _problem_response(classes)
        return {str(status): found[status] for status in sorted(found)}

    def _errors(self, operation: Operation) -> Iterable[type[DomainError]]:
        if operation.body is not None:
            yield from (errors.InvalidJSON, errors.InvalidRequest, api.PayloadTooLarge, api.UnsupportedMediaType)
        if operation.query is not None:
            yield errors.InvalidRequest
        if self.view.authentication_classes:
            yield from (errors.NotAuthenticated, errors.TokenInvalid)
        if operation.throttled:
            yield errors.RateLimited
        if operation.command:
            yield from (api.IdempotencyKeyMissing, api.IdempotencyKeyInvalid, IdempotencyKeyReused)
        yield from operation.errors
        yield api.InternalError
        if operation.reads_database:
            yield errors.Unavailable

    def _map_serializer(self, serializer: Any, direction: Any, bypass_extensions: bool = False) -> Schema:
        """Strict serializers refuse what they do not know."""
        mapped = dict(super()._map_serializer(serializer, direction, bypass_extensions))  # type: ignore[no-untyped-call]
        mapped.pop("description", None)
        return {**mapped, "additionalProperties": False}

    def _map_serializer_field(self, field: Any, direction: Any, bypass_extensions: bool = False) -> Any:
        said: Schema | None = getattr(field, "json_schema", None)
        if said is None:
            return super()._map_serializer_field(field, direction, bypass_extensions)  # type: ignore[no-untyped-call]
        meta = dict(self._get_serializer_field_meta(field, direction))  # type: ignore[no-untyped-call]
        meta.pop("minLength", None)
        return append_meta(dict(said), meta)


def _success(answer: Answer, operation: Operation) -> Schema:
    names = [*answer.headers, *(["Idempotent-Replayed"] if operation.command else []), "X-Request-ID"]
    response: Schema = {"description": answer.description, "headers": _headers(names)}
    if answer.schema is not None:
        content: Schema = {"schema": answer.schema}
        if answer.examples:
            content["examples"] = {name: {"value": value} for name, value in answer.examples.items()}
        elif answer.example is not None:
            content["example"] = answer.example
        response["content"] = {answer.media_type: content}
    return response


def _problem_response(classes: Sequence[type[DomainError]]) -> Schema:
    """One status, and the codes that it comes with here."""
    status = status_of(classes[0]())
    codes = list(dict.fromkeys(class_.code for class_ in classes))
    own_headers = {401: ["WWW-Authenticate"], 429: ["Retry-After"], 503: ["Retry-After"]}
    narrowed = {"properties": {"status": {"const": status}, "code": {"enum": codes}}}
    examples = {code: {"$ref": f"#/components/examples/{code}"} for code in codes}
    schema = {"allOf": [{"$ref": "#/components/schemas/Problem"}, narrowed]}
    return {
        "description": "; ".join(f"`{code}`" for code in codes),
        "headers": _headers([*own_headers.get(status, []), "X-Request-ID"]),
        "content": {words.PROBLEM_JSON: {"schema": schema, "examples": examples}},
    }


def _headers(names: Iterable[str]) -> Schema:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _without_null(schema: Schema) -> Schema:
    """In a query string nothing is null."""
    types = schema.get("type")
    if isinstance(types, list):
        return {**schema, "type": next(each for each in types if each != "null")}
    if "oneOf" in schema:
        return {**schema, "oneOf": [each for each in schema["oneOf"] if each != {"type": "null"}]}
    return schema


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
