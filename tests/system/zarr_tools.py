"""Tools of tests that let zarr-python and xarray read files in their own process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.optional import needed

zarr = needed("zarr")


def start_threads(folder: Path) -> None:
    """Start the threads that zarr-python keeps from its first use on, to the end of the process: one with an event loop
    and, for files that it reads itself, a pool, which gets one thread here.
    """
    zarr.config.set({"threading.max_workers": 1})
    zarr.create_group(folder / "first_use.zarr")


def dying(marks: str, times: int, function: Any, *arguments: Any, **named: Any) -> Any:
    """Call a function of a task with records of which the process, so many times, does not get the second; in a task.

    ``marks`` is a folder that has a file for each death.
    """
    *leading, records = arguments
    return function(*leading, _until_death(Path(marks), times, records), **named)


def _until_death(marks: Path, times: int, records: Iterable[Any]) -> Iterator[Any]:
    for number, record in enumerate(records):
        if number == 1 and len(deaths := list(marks.iterdir())) < times:
            (marks / f"{len(deaths)}-{os.getpid()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield record
