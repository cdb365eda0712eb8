"""The OpenAPI document: complete, valid, true to its examples, and the same that is committed."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from django.urls import URLPattern, URLResolver, get_resolver
from drf_spectacular.validation import validate_schema
from jsonschema import Draft202012Validator, FormatChecker

from tests.api.contract import faults_of, resolved
from tests.api.phone import Phones, at_once, problem
from tests.conftest import serving
from wallet_project.openapi import document

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).parents[2]


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_it_is_served_and_committed(phones: Phones) -> None:
    committed = yaml.safe_load((ROOT / "docs" / "openapi.yaml").read_text(encoding="utf-8"))
    assert committed == document(), "run `make openapi`"
    assert phones.http.get("/v1/schema").json() == document()


def test_many_ask_at_once_for_a_document_that_is_not_made_yet(transactional_db: None) -> None:
    with serving() as served, httpx.Client(base_url=served.url, timeout=30) as http:
        answers = at_once([lambda: http.get("/v1/schema")] * 16)
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.content for answer in answers} == {answers[0].content}


def test_it_is_a_valid_document_of_this_version() -> None:
    validate_schema(document())  # type: ignore[no-untyped-call]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert document()["info"]["version"] == project["version"]


def test_every_address_is_described() -> None:
    """Found in the urls themselves, not by the generator that the document is made with."""

    def addresses(patterns: list[Any], before: str = "") -> Iterator[str]:
        for pattern in patterns:
            route = before + str(pattern.pattern)
            if isinstance(pattern, URLResolver):
                yield from addresses(pattern.url_patterns, route)
            elif isinstance(pattern, URLPattern) and not route.startswith("admin"):
                for method in set(getattr(pattern.callback, "actions", {})) - {"head"}:  # added by the first call
                    yield f"{method.upper()} /" + re.sub(r"<\w+:(\w+)>", r"{\1}", route)

    found = set(addresses(get_resolver().url_patterns))
    described = {re.sub(r"{(\w+)Id}", r"{\1_id}", name) for name, _ in operations()}
    assert found == described


@pytest.mark.parametrize(("name", "operation"), [pytest.param(*each, id=each[0]) for each in operations()])
def test_every_call_says_all_there_is_to_say(name: str, operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert len(operation["description"]) > 10
    parameters = [resolved(parameter) for parameter in operation["parameters"]]
    assert all(parameter["description"] and parameter["schema"] for parameter in parameters)
    assert {parameter["name"] for parameter in parameters if parameter["in"] == "path"} == set(
        re.findall(r"{(\w+)}", name)
    )
    statuses = {int(status) for status in operation["responses"]}
    assert statuses & {200, 201, 202, 204}
    assert 500 in statuses
    if name.startswith("POST"):
        assert {400, 413, 415, 503} <= statuses
        assert operation["requestBody"]["content"]["application/json"]["example"] is not None
    assert (401 in statuses) or operation["security"] == []
    for status, response in operation["responses"].items():
        found = resolved(response)
        assert found["headers"]["X-Request-ID"]
        assert ("Retry-After" in found["headers"]) == (status in ("429", "503"))
        for type_, content in found.get("content", {}).items():
            assert type_ == "text/html" or "example" in content or "examples" in content
    keyed = "Idempotency-Key" in {parameter["name"] for parameter in parameters}
    assert keyed == ("Idempotent-Replayed" in str(operation["responses"]))


def test_every_example_is_as_its_schema_says() -> None:
    seen = 0
    components = {"components": document()["components"]}
    for name, operation in operations():
        bodies = [operation["requestBody"]] if "requestBody" in operation else []
        for part in [*bodies, *map(resolved, operation["responses"].values())]:
            for content in part.get("content", {}).values():
                validator = Draft202012Validator(
                    {"allOf": [content["schema"]], **components}, format_checker=FormatChecker()
                )
                examples = [resolved(each)["value"] for each in content.get("examples", {}).values()]
                for example in [*examples, *([content["example"]] if "example" in content else [])]:
                    assert list(validator.iter_errors(example)) == [], name
                    seen += 1
    assert seen > 100


def test_schemas_of_commands_refuse_what_they_do_not_name() -> None:
    schemas = document()["components"]["schemas"]
    requests = {name: schema for name, schema in schemas.items() if name.endswith("Request")}
    assert len(requests) >= 7
    assert all(schema["additionalProperties"] is False for schema in requests.values())
    transfer = requests["TransferRequest"]
    assert transfer["required"] == ["amount", "fromAccountId", "toAccountId"]
    amount = transfer["properties"]["amount"]
    assert (amount["type"], amount["minimum"], amount["maximum"]) == ("integer", 1, 2**53 - 1)
    assert transfer["properties"]["reference"]["maxLength"] == 140


def test_the_pages_for_people_come_from_here_alone(phones: Phones) -> None:
    page = phones.http.get("/v1/docs")
    assert page.status_code == 200
    links = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(links) >= 3
    assert "http:" not in page.text
    assert "https:" not in page.text
    for link in links:
        if not link.startswith("data:"):
            assert link.startswith("/static/")
            file = httpx.get(phones.http.base_url.join(link))
            assert (file.status_code, len(file.content) > 10_000) == (200, True)
    for path in ("/v1/docs", "/v1/schema"):
        problem(phones.http.post(path), status=405, code="method_not_allowed")
        assert phones.http.options(path).status_code == 204


def test_the_judge_can_find_faults() -> None:
    """What the other tests rely on: an answer that is not as documented is noticed."""

    def judged(status: int, body: Any, *, headers: dict[str, str] | None = None, path: str = "/v1/transfers") -> str:
        request = httpx.Request("POST", f"http://test{path}")
        given = {"X-Request-ID": "a", **(headers or {})}
        return " ".join(faults_of(httpx.Response(status, json=body, headers=given, request=request)))

    posted = {"transactionId": "01a22daf-1602-744f-a315-6f0f53d1b7d0", "status": "COMPLETED"}
    assert judged(201, posted) == ""
    assert "not valid" in judged(201, {**posted, "status": "DONE"})
    assert "not valid" in judged(201, {**posted, "more": 1})
    assert "not valid" in judged(201, {"status": "COMPLETED"})
    assert "not documented" in judged(200, posted)
    assert "not documented" in judged(201, posted, headers={"Retry-After": "1"})
    assert "X-Request-ID" in " ".join(
        faults_of(httpx.Response(201, json=posted, request=httpx.Request("POST", "http://test/v1/transfers")))
    )
    assert "not documented" in judged(422, posted)
