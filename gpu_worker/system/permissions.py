"""Examination of a private directory: who owns it and what lies in it, and who else may read, write or replace that."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: What others may not do with a directory or a file: anything, or write.
ANYTHING, WRITE = 0o077, 0o022

_MOST_NAMED = 3


@dataclass(frozen=True)
class Exposure:
    """Kind of access that other users have to a directory.

    Attributes
    ----------
    problem : str
        Path, owner and mode.
    mend : str
        The command that closes it; empty where another directory has to be used.
    is_refused : bool
        Whether the worker refuses to use the directory, or somebody else has put something into it.
    """

    problem: str
    mend: str
    is_refused: bool


def exposures(directory: Path, forbidden: int) -> Iterator[Exposure]:
    """Yield the ways in which a directory that there is, its files and those above it are open to other users.

    Parameters
    ----------
    directory : Path
        Not followed where it is a link.
    forbidden : int
        Bits of a mode, :data:`ANYTHING` or :data:`WRITE`.

    Examples
    --------
    >>> list(exposures(Path("/proc/self"), ANYTHING))[0].problem
    '/proc/self is a link or a file, not a directory'
    """
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode):
        yield Exposure(f"{directory} is a link or a file, not a directory", f"rm {shlex.quote(str(directory))}", True)
        return
    if status.st_uid != os.geteuid():
        yield Exposure(f"{directory} belongs to user {status.st_uid}, not to user {os.geteuid()}", "", True)
        return
    if status.st_mode & forbidden:
        yield Exposure(f"{directory} has mode {stat.S_IMODE(status.st_mode):04o}",
                       f"chmod 700 {shlex.quote(str(directory))}", True)
    yield from _files(directory, forbidden)
    for above in directory.absolute().parents:
        mode = above.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            yield Exposure(f"{above}, above {directory}, has mode {stat.S_IMODE(mode):04o}: anybody may move away what "
                           "lies in it", f"chmod +t {shlex.quote(str(above))}", False)


def _files(directory: Path, forbidden: int) -> Iterator[Exposure]:
    """Yield one exposure for all files of other users below a directory, and one for all that are open to them."""
    others, open_ones = [], []
    for path in sorted(directory.rglob("*")):
        try:
            status = path.lstat()
        except OSError:
            continue        # gone meanwhile
        if status.st_uid != os.geteuid():
            others.append(path)
        elif status.st_mode & forbidden and not stat.S_ISLNK(status.st_mode):
            open_ones.append(path)
    if others:
        yield Exposure(f"{_named(others)} belong to other users", f"rm {_quoted(others)}", True)
    if open_ones:
        yield Exposure(f"{_named(open_ones)} are open to other users", f"chmod go-rwx {_quoted(open_ones)}", False)


def _named(paths: list[Path]) -> str:
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    return ", ".join(map(str, paths[:_MOST_NAMED])) + more


def _quoted(paths: list[Path]) -> str:
    more = " ..." if len(paths) > _MOST_NAMED else ""
    return shlex.join(map(str, paths[:_MOST_NAMED])) + more
