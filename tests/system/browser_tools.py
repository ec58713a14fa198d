"""Chromium for tests of pages: one browser a file, pages that note what a browser complains of and what it asks for."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from urllib.parse import urlsplit

import pytest

from tests.optional import needed

sync_api = needed("playwright.sync_api")
axe = needed("axe_playwright_python.sync_playwright")

#: Milliseconds that a page has to become as a test wants it; a busy machine needs many.
PATIENCE = 60_000.0
DESKTOP, PHONE = (1280, 900), (400, 800)

#: Names of the elements that the Tab key reaches, in order, and of tables and images without what says what they are.
_UNNAMED = """() => [...document.querySelectorAll('table')].filter((each) => !each.querySelector('th')).length
  + [...document.querySelectorAll('img:not([alt])')].length"""


class Page:
    """A page in a browser context of its own, so that no cookie is shared."""

    def __init__(self, browser, size: tuple[int, int] = DESKTOP):
        self._context = browser.new_context(viewport={"width": size[0], "height": size[1]})
        self.page = self._context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda said: said.type == "error" and self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def open(self, link: str) -> Page:
        self.page.goto(link)
        self.page.locator("h1").wait_for()
        return self

    def shows(self, selector: str, text: str) -> None:
        """Wait until the first element of a selector has a text."""
        sync_api.expect(self.page.locator(selector).first).to_contain_text(text, timeout=PATIENCE)

    def focused(self) -> str:
        """Return the name of what has the focus: the text of a link or button, the label of anything else."""
        return self.page.evaluate("""() => { const at = document.activeElement;
            return at.innerText && at.tagName !== 'SELECT' && at.tagName !== 'DIV' ? at.innerText
                : at.getAttribute('aria-label') || at.id || ''; }""")

    def press_until(self, name: str) -> None:
        """Go on by the Tab key until something of a name is reached."""
        for _ in range(60):
            self.page.keyboard.press("Tab")
            if self.focused() == name:
                return
        raise AssertionError(f"the Tab key does not reach {name!r}")

    def overflow(self) -> int:
        """Return by how much the page is wider than its window, once its style sheets are there."""
        self.page.wait_for_load_state("load")
        return self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def accessible(self) -> None:
        """Check that the page breaks no rule of axe-core's: roles, names, contrast, headings, landmarks."""
        violations = axe.Axe().run(self.page).response["violations"]
        assert not violations, "\n".join(
            f"{each['id']}: {each['help']}: {[node['html'][:120] for node in each['nodes']]}" for each in violations)

    def check(self) -> None:
        """Check that the page has no script errors, asked nobody else, fits its window, and its tables have headers."""
        assert not self.complaints
        assert {urlsplit(url).hostname for url in self.asked if not url.startswith("data:")} <= {"127.0.0.1"}
        assert self.overflow() <= 0
        assert self.page.evaluate(_UNNAMED) == 0

    def close(self) -> None:
        self._context.close()


class Server(Protocol):
    """Server that a thread may run."""

    def run(self) -> None: ...
    def stop(self) -> None: ...


@contextmanager
def serving(server: Server) -> Iterator[None]:
    """Run a server in a thread, during the block."""
    thread = threading.Thread(target=server.run, name="pages")
    thread.start()
    try:
        yield
    finally:
        server.stop()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """Run Debian's Chromium, which all tests of a module share."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium on this machine: .ci/prerequisites installs it")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield chromium
        chromium.close()
