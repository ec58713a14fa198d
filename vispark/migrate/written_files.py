"""Files that commands write, of which one that cannot be written leaves what was there as it was."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from vispark._utils.writable import why_unwritable
from vispark.migrate.errors import OutputError


def check_file(path: Path) -> None:
    """Raise OutputError where a file cannot be written, before what takes long to find what is to be in it.

    Examples
    --------
    >>> check_file(Path("/none/job.py"))
    Traceback (most recent call last):
    vispark.migrate.errors.OutputError: /none/job.py cannot be written: there is no directory /none; make it first, ...
    """
    if why := why_unwritable(path):
        raise OutputError(f"{path} cannot be written: {why}")


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
    vispark.migrate.errors.OutputError: none/job.py cannot be written: there is no directory ...
    """
    try:
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
        else:
            _replace(path.resolve(), text)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {why_unwritable(path) or error.strerror or error}") from error


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
