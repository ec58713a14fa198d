"""Store of a run's answers: the user's, or one beside the run's files from the moment on at which that one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from vispark.migrate.errors import HistoryError
from vispark.migrate.store.history import History

_Kept = TypeVar("_Kept")


class RunStore:
    """Store of a run that may take minutes, whose answers outlive a full disk or a store that another one holds.

    Parameters
    ----------
    history : History
        The user's store.
    beside : Path
        File of the store that takes all answers of the run once the user's cannot be written; one that is there goes.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = RunStore(History(Path(folder) / "mine.db"), Path(folder) / "beside.db")
    ...     job = store.keep(lambda history: history.job("/job.py", source="a = 1"))
    ...     _ = store.history.path.write_bytes(b"no store any more")
    ...     job = store.keep(lambda history: history.job("/job.py", diff="-a = 1"))
    ...     store.history.path.name, store.history.whole_job(job)["source"]
    ('beside.db', 'a = 1')
    """

    def __init__(self, history: History, beside: Path):
        #: The store that has the answers; None where neither can be written.
        self.history: History | None = history
        self._beside = beside
        self._keeping: list[Callable[[History], Any]] = []
        #: Why the user's store has not got the answers; empty where it has.
        self.failed = ""

    def keep(self, keeping: Callable[[History], _Kept]) -> _Kept | None:
        """Have a function write to the store, and return what it does; it may be called again, with another store.

        Where no store can be written it returns None.
        """
        self._keeping.append(keeping)
        missing = [keeping]
        while self.history is not None:
            try:
                return [each(self.history) for each in missing][-1]
            except HistoryError as error:
                self.failed = self.failed or error.message
                self.history, missing = self._other(self.history), self._keeping
        return None

    def _other(self, failed: History) -> History | None:
        """Return the store beside the run's files, unless it is what failed, or cannot be made."""
        if failed.path == self._beside:
            return None
        self._beside.unlink(missing_ok=True)
        try:
            return History(self._beside)
        except HistoryError:
            return None

    def words(self) -> str:
        """Return the reason for which the user's store has not got the answers, and their place; empty where it has."""
        if not self.failed:
            return ""
        place = "" if self.history is None else f"; this run is in it with VISPARK_HISTORY={self.history.path}"
        return f"vispark report has not got it: {self.failed}{place}"


@contextmanager
def saying_what_is_not_kept() -> Iterator[None]:
    """Say on the terminal that the store could not be written; what a command found counts all the same."""
    try:
        yield
    except HistoryError as error:
        click.echo(f"vispark: not kept for vispark report: {error.message}", err=True)
