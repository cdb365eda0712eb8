"""The API's page for people: drawn in a browser from files of our own alone."""

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.system]


def test_the_documentation_is_drawn_from_our_own_files(chromium: Browser, service: str) -> None:
    page = chromium.new_page(base_url=service)
    asked: list[str] = []
    faults: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: faults.append(str(error)))

    page.goto("/v1/docs")

    expect(page.get_by_text("/v1/transfers", exact=True).first).to_be_visible(timeout=20_000)
    expect(page.get_by_text("/v1/accounts/{accountId}/balance").or_(page.get_by_text("/balance")).first).to_be_visible()
    assert faults == []
    hosts = {urlsplit(url).netloc for url in asked if not url.startswith("data:")}
    assert hosts == {urlsplit(service).netloc}
