"""Progress on a terminal, in a notebook and in a log, and where nothing of it is shown."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from vispark.runtime.driver import progress as module
from vispark.runtime.driver.progress import progress, showing


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class NotebookShell:
    """A notebook's shell, which notes what is published."""

    kernel = object()

    def __init__(self) -> None:
        self.published: list[tuple[dict, str, bool]] = []
        self.display_pub = SimpleNamespace(publish=self.publish)

    def publish(self, data: dict, transient: dict, update: bool) -> None:
        self.published.append((data, transient["display_id"], update))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace the time by a number that the test changes."""
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> NotebookShell:
    shell = NotebookShell()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    return shell


def run(clock: list[float], wanted: bool | None = None, seconds: float = 1.0) -> None:
    with showing("iterate heat", 1000, "steps", wanted) as bar:
        for done in range(100, 1001, 100):
            clock[0] += seconds
            bar.update(done, "change 0.5")


def test_a_log_has_whole_lines_and_few_of_them(clock: list[float], capsys):
    run(clock, True, seconds=3.0)
    assert capsys.readouterr().err.splitlines() == [
        "iterate heat: 100 of 1,000 steps, change 0.5, 3 s",
        "iterate heat: 500 of 1,000 steps, change 0.5, 15 s",
        "iterate heat: 900 of 1,000 steps, change 0.5, 27 s",
        "iterate heat: 1,000 of 1,000 steps, change 0.5, 30 s"]


def test_a_log_that_nobody_asked_for_has_none(clock: list[float], capsys):
    for wanted in (None, False):
        run(clock, wanted)
    with progress(False):
        run(clock)
    with progress():
        run(clock, False)
    assert capsys.readouterr().err == ""
    with progress():
        run(clock)
    assert capsys.readouterr().err.startswith("iterate heat: 100 of 1,000 steps")


def test_a_terminal_shows_a_bar_of_what_takes_long(clock: list[float], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "xterm")
    for seconds, is_shown in ((0.1, False), (1.0, True)):
        monkeypatch.setattr(sys, "stderr", Terminal())
        run(clock, seconds=seconds)
        assert ("iterate heat" in sys.stderr.getvalue()) == is_shown


def test_a_notebook_has_a_line_that_is_written_over(clock: list[float], kernel: NotebookShell):
    run(clock, seconds=0.1)
    assert not kernel.published
    run(clock)
    (first, number, update), *others, (last, *_) = kernel.published
    assert first["text/plain"] == "iterate heat: 200 of 1,000 steps, change 0.5, 2 s" and not update
    assert first["text/html"] == f'<progress value="200" max="1000"></progress> {first["text/plain"]}'
    assert last == {"text/plain": "", "text/html": ""}
    assert all((each, updated) == (number, True) for _, each, updated in others)
    with progress(False):
        run(clock)
    assert kernel.published[-1][1] == number
