"""Progress of loads and loops: a bar on a terminal, a line written over in a notebook, whole lines in a log."""

from __future__ import annotations

import html
import random
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

# rich draws one of Python's random numbers when it is imported, which a program that seeded them would miss.
_drawn = random.getstate()

from rich.console import Console  # noqa: E402
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn  # noqa: E402
from rich.progress import Progress as Bar  # noqa: E402

random.setstate(_drawn)

#: What is done before shows nothing, unless it is asked for.
_QUIET_SECONDS = 2.0
#: From one line of a log to the next, and from one change of a notebook's line to the next.
_LOG_SECONDS, _NOTEBOOK_SECONDS = 10.0, 0.25

#: Whether progress is shown, by :func:`progress`; None: where there is a terminal or a notebook.
_wanted: ContextVar[bool | None] = ContextVar("vispark_progress", default=None)


@contextmanager
def progress(shown: bool = True) -> Iterator[None]:
    """Show how far the loads and ``iterate`` loops within the block are, or, with False, show nothing of them.

    On a terminal that is a bar, in a notebook a line that is written over (without ipywidgets), and where stderr is
    neither, a whole line every 10 s, without carriage returns. Outside of such a block terminals and notebooks show
    what takes longer than 2 s, and logs nothing.

    Parameters
    ----------
    shown : bool
        Whether to show it, from the start and in logs too.

    Returns
    -------
    context manager
        ``with`` gives None.

    See Also
    --------
    VRDD.iterate : ``progress=`` says it for one loop.

    Examples
    --------
    >>> with progress(False):
    ...     sc.parallelize(range(4), 2).cache("GPU").count()
    4
    """
    token = _wanted.set(bool(shown))
    try:
        yield
    finally:
        _wanted.reset(token)


class _View(Protocol):
    """Interface of a place where progress is shown."""

    def show(self, done: int, note: str, text: str) -> None:
        """Show how much is done, with a note and as a text of its own."""

    def close(self) -> None:
        """Show the end, or nothing any more."""


class ShownProgress:
    """Progress of one load or loop; made by :func:`showing`.

    Parameters
    ----------
    label, unit : str
        What runs, and what it counts.
    total : int
        How many there are in all.
    wanted : bool or None
        Whether to show it; None: if it takes long, on a terminal or in a notebook.
    """

    def __init__(self, label: str, total: int, unit: str, wanted: bool | None):
        self._label, self._total, self._unit = label, total, unit
        self._began = time.monotonic()
        self._quiet = 0.0 if wanted else _QUIET_SECONDS
        self._view: _View | None = None
        self._make = None if wanted is False else _place(bool(wanted))
        #: Whether anything will be shown.
        self.is_shown = self._make is not None

    def update(self, done: int, note: str = "") -> None:
        """Show how many are done, if it is time to."""
        seconds = time.monotonic() - self._began
        if self._make is None or (self._view is None and seconds < self._quiet):
            return
        if self._view is None:
            self._view = self._make(self._label, self._total)
        text = f"{self._label}: {done:,} of {self._total:,} {self._unit}{', ' * bool(note)}{note}, {seconds:.0f} s"
        self._view.show(done, note, text)

    def close(self) -> None:
        """End what is shown."""
        if self._view is not None:
            self._view.close()


@contextmanager
def showing(label: str, total: int, unit: str, wanted: bool | None = None) -> Iterator[ShownProgress]:
    """Yield the progress of a load or a loop; parameters as of :class:`ShownProgress`, ``wanted`` else by
    :func:`progress`.
    """
    progress = ShownProgress(label, total, unit, _wanted.get() if wanted is None else wanted)
    try:
        yield progress
    finally:
        progress.close()


def _place(is_wanted: bool) -> type[_Notebook] | type[_Terminal] | type[_Log] | None:
    """Return the view for where the program runs; None for a log that nobody asked for."""
    if _shell() is not None:
        return _Notebook
    if sys.stderr.isatty():
        return _Terminal
    return _Log if is_wanted else None


def _shell() -> Any:
    """Return the shell of the notebook's kernel that runs this program; None where none does."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return shell if hasattr(shell, "kernel") else None


class _Terminal:
    """Bar on a terminal, which goes when what it shows has ended."""

    def __init__(self, label: str, total: int):
        self._bar = Bar(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                        TextColumn("{task.fields[note]}"), console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(label, total=total, note="")
        self._bar.start()

    def show(self, done: int, note: str, text: str) -> None:
        self._bar.update(self._task, completed=done, note=note)

    def close(self) -> None:
        self._bar.stop()


class _Notebook:
    """Line of a notebook's cell that is written over, and empty at the end: text, and the same with an HTML bar."""

    def __init__(self, label: str, total: int):
        self._total = total
        self._display = {"display_id": uuid.uuid4().hex}
        self._is_there, self._next = False, 0.0

    def show(self, done: int, note: str, text: str) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _NOTEBOOK_SECONDS
            bar = f'<progress value="{done}" max="{self._total}"></progress> {html.escape(text)}'
            self._publish({"text/plain": text, "text/html": bar})

    def close(self) -> None:
        self._publish({"text/plain": "", "text/html": ""})

    def _publish(self, data: dict[str, str]) -> None:
        _shell().display_pub.publish(data, transient=self._display, update=self._is_there)
        self._is_there = True


class _Log:
    """Whole lines in a log: the first, one every few seconds, and the last."""

    def __init__(self, label: str, total: int):
        self._next, self._text, self._written = 0.0, "", ""

    def show(self, done: int, note: str, text: str) -> None:
        self._text = text
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _LOG_SECONDS
            self._write()

    def close(self) -> None:
        if self._text != self._written:
            self._write()

    def _write(self) -> None:
        self._written = self._text
        print(self._text, file=sys.stderr, flush=True)
