"""A real browser: Debian's Chromium, driven by Playwright. Without it these tests are left out, and counted."""

import os
import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.world import PASSWORD

CHROMIUM = shutil.which("chromium")
SignedIn = Callable[[str], Page]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A machine without Chromium leaves out exactly these tests, and says how many; CI has it, or shall fail."""
    if CHROMIUM is not None or os.environ.get("CI"):
        return
    needy = [item for item in items if "chromium" in getattr(item, "fixturenames", ())]
    if needy:
        config.hook.pytest_deselected(items=needy)
        items[:] = [item for item in items if item not in needy]
        terminal = config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.write_line(f"{len(needy)} browser tests are left out: this machine lacks Chromium")


@pytest.fixture
def chromium() -> Iterator[Browser]:
    assert CHROMIUM is not None, "the browser tests need Chromium"
    with sync_playwright() as playwright:
        # A sandbox needs rights that root in a container lacks; what is opened here is our own pages.
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture
def signed_in(chromium: Browser, service: str) -> Iterator[SignedIn]:
    """A window of its own for each member of staff, signed in by the form."""
    contexts: list[BrowserContext] = []

    def open_window(username: str) -> Page:
        context = chromium.new_context(base_url=service)
        contexts.append(context)
        page = context.new_page()
        page.goto("/admin/")
        page.get_by_label("Username:").fill(username)
        page.get_by_label("Password:").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        return page

    yield open_window
    for context in contexts:
        context.close()
