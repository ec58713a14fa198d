"""Checks whether a file can be written, before what takes long to find what is to be in it."""

from __future__ import annotations

import contextlib
from pathlib import Path


def why_unwritable(path: Path) -> str:
    """Return the reason for which a file cannot be written, with what would help; "" where it can.

    A file that is not there is made for that and goes; one that is there stays as it is.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     why_unwritable(Path(folder, "trace.json"))
    ''
    >>> why_unwritable(Path("/no/such/trace.json"))
    'there is no directory /no/such; make it first, or name a file in another'
    """
    path = path.absolute()
    if path.is_dir():
        return "it is a directory; name a file in it"
    is_there = path.exists()
    if is_there and not path.is_file():
        return ""       # a device, or a pipe, which opening would wait for
    try:
        path.open("ab").close()
    except OSError as error:
        return why_no_directory(path.parent) or error.strerror or str(error)
    if not is_there:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    return ""


def why_no_directory(path: Path) -> str:
    """Return the reason for which a path is no directory, with what would help; "" where it is one.

    Examples
    --------
    >>> why_no_directory(Path("/"))
    ''
    """
    if path.is_dir():
        return ""
    is_file = next((each for each in (path, *path.parents) if each.is_file()), None)
    if is_file is not None:
        return f"{is_file} is a file and no directory"
    return f"there is no directory {path}; make it first, or name a file in another"
