"""Traces of runs in the store: each is a file beside it, and goes when its run does."""

from __future__ import annotations

import os
from pathlib import Path

from vispark.migrate.capture.run_traces import RunFolder
from vispark.migrate.errors import HistoryError
from vispark.migrate.store.history import History


def keep_trace(history: History, run: int, folder: RunFolder) -> Path | None:
    """Have a run of the store have its trace, break-down and application id; return the trace's path.

    The trace is a file beside the store, for its owner alone, which goes when the run does. None where nothing is known
    of the run.

    Raises
    ------
    HistoryError
        If the file or the store cannot be written.
    """
    trace = folder.read()
    if trace is None:
        return None
    path = history.path.resolve().parent / "traces" / f"run-{run}.json"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"):
            trace.profile().save(path)
    except OSError as error:
        raise HistoryError(f"the trace {path} cannot be written: {error.strerror or error}") from error
    history.set_trace(run, str(path), trace.document(), trace.application.number)
    return path
