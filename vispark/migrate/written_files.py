"""Files that commands write, of which one that cannot be written leaves what was there as it was."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from vispark.migrate.errors import OutputError


def write_file(path: Path, text: str) -> None:
    """Write a text to a file, all of it or nothing: a full disk does not take a file that was there.

    Parameters
    ----------
    path : Path
        A file, which keeps its mode, or a device; its folder has to be there.
    text : str

    Raises
    ------
    OutputError
        If it cannot be written.

    Examples
    --------
    >>> write_file(Path("none", "job.py"), "")
    Traceback (most recent call last):
    vispark.migrate.errors.OutputError: none/job.py cannot be written: No such file or directory
    """
    try:
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
        else:
            _replace(path.resolve(), text)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}") from error


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        if path.exists():
            shutil.copymode(path, beside)
        beside.replace(path)
    finally:
        with suppress(FileNotFoundError):
            beside.unlink()
