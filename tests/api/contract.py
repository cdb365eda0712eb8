"""The OpenAPI document as a judge: it says of any answer what in it is not as documented."""

import json
import re
from functools import cache
from typing import Any

import httpx
from jsonschema import Draft202012Validator, FormatChecker

from wallet_project.openapi import document

PROBLEM = "application/problem+json"


def must_be_as_documented(response: httpx.Response) -> None:
    """An event hook for clients: every answer is judged as it comes."""
    if response.request.method not in ("HEAD", "OPTIONS") and not response.request.url.path.startswith("/admin"):
        response.read()
        assert faults_of(response) == [], f"{response.request.method} {response.request.url}: {response.text}"


def faults_of(response: httpx.Response) -> list[str]:
    """What in an answer is not as documented."""
    operation = operation_for(response.request.method, response.request.url.path)
    type_ = response.headers.get("content-type", "").partition(";")[0]
    if response.status_code == 405 or operation is None:
        return _against(ref("Problem"), response.json()) if type_ == PROBLEM else [f"{type_} where nothing is"]
    documented = operation["responses"].get(str(response.status_code))
    if documented is None:
        return [f"status {response.status_code} is not documented"]
    documented = resolved(documented)
    headers = {name: resolved(header) for name, header in documented.get("headers", {}).items()}
    found = [f"no {name}" for name, header in headers.items() if header["required"] and name not in response.headers]
    for name, header in headers.items():
        value = response.headers.get(name)
        if value is not None:
            integer = header["schema"]["type"] == "integer"
            found += _against(header["schema"], int(value) if integer else value)
    for name in ("Idempotent-Replayed", "Preference-Applied", "Retry-After", "WWW-Authenticate"):
        if name in response.headers and name not in headers:
            found.append(f"{name} is not documented")
    content = documented.get("content")
    if content is None:
        return found + (["a body"] if response.content else [])
    if type_ not in content:
        return [*found, f"{type_} is not documented"]
    return found + (_against(content[type_]["schema"], response.json()) if "json" in type_ else [])


def operation_for(method: str, path: str) -> dict[str, Any] | None:
    """The description of a call; None for an address that has none."""
    for pattern, methods in _paths():
        if pattern.fullmatch(path) and method.lower() in methods:
            operation: dict[str, Any] = methods[method.lower()]
            return operation
    return None


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def resolved(part: dict[str, Any]) -> dict[str, Any]:
    """What a reference of the document refers to."""
    while "$ref" in part:
        found: Any = document()
        for step in part["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        part = found
    return part


def _against(schema: dict[str, Any], value: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in _validator(json.dumps(schema)).iter_errors(value)]


@cache
def _validator(schema: str) -> Draft202012Validator:
    components = {"schemas": {name: _closed(each) for name, each in document()["components"]["schemas"].items()}}
    return Draft202012Validator(
        {"allOf": [json.loads(schema)], "components": components},
        format_checker=FormatChecker(),
    )


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Clients must expect further fields; we may not send any that are not documented."""
    closed = {"additionalProperties": False} if schema.get("type") == "object" else {}
    return {**closed, **schema}


@cache
def _paths() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    return [(re.compile(re.sub(r"{\w+}", "[^/]+", path)), methods) for path, methods in document()["paths"].items()]
