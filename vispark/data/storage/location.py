"""Locations of files in stores, and what a store has to do for them."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gpu_worker.protocol.errors import PlanError


@dataclass(frozen=True)
class FileState:
    """Size of a file in bytes, and a version, which another content has not."""

    size: int
    version: str


class Store(ABC):
    """Interface of a store. Names are those within it; methods raise the store's own errors."""

    #: What it raises beside OSError and ValueError.
    errors: tuple[type[Exception], ...] = ()
    #: Those of its errors that say that one may not.
    refusals: tuple[type[Exception], ...] = ()
    #: What is behind its errors: the settings by which it is reached.
    advice = ""
    #: Whether a directory can take another name at once. Object stores have no directories.
    renames = True

    @abstractmethod
    def state(self, name: str) -> FileState:
        """Return a file's size and version; FileNotFoundError where there is none."""

    @abstractmethod
    def read(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[Any]:
        """Return the bytes of ranges of a file, each of (first, last + 1), as objects with the buffer protocol."""

    @abstractmethod
    def content(self, name: str) -> Any:
        """Return all bytes of a file."""

    @abstractmethod
    def write(self, name: str, pieces: Iterable[Any], nbytes: int) -> None:
        """Write ``nbytes`` bytes, which come in pieces, as one file: whole or, where a piece raises, not at all."""

    @abstractmethod
    def names(self, name: str) -> dict[str, bool]:
        """Return the names in a directory, and whether each is a file; empty where there is no directory."""

    def make(self, name: str) -> None:
        """Make a directory, and those above it."""
        raise NotImplementedError

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a directory and all below it, as far as it is there."""

    def rename(self, name: str, new: str) -> None:
        """Give a directory a name that is free."""
        raise NotImplementedError

    def is_there(self, name: str) -> bool:
        """Return whether there is a file or a directory of this name."""
        try:
            self.state(name)
        except (FileNotFoundError, IsADirectoryError):
            return bool(self.names(name))
        return True


@dataclass(frozen=True)
class Location:
    """Place of a file or a directory: the path that a user knows, the store and the name in it."""

    path: str
    store: Store
    name: str

    def __truediv__(self, child: str) -> Location:
        name = f"{self.name.rstrip('/')}/{child}" if self.name else child
        return Location(f"{self.path.rstrip('/')}/{child}", self.store, name)

    def beside(self, mark: str) -> Location:
        """Return the location of a hidden name in the same directory."""
        def renamed(whole: str) -> str:
            directory, slash, last = whole.rstrip("/").rpartition("/")
            return f"{directory}{slash}.{last}.{mark}"

        return Location(renamed(self.path), self.store, renamed(self.name))

    def state(self) -> FileState:
        """Return the file's size and version."""
        with self.naming("read"):
            return self.store.state(self.name)

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[Any]:
        """Return ranges of the file's bytes.

        Raises
        ------
        PlanError
            If the file cannot be read, or ends before the last of the ranges does.
        """
        with self.naming("read"):
            pieces = self.store.read(self.name, ranges)
        for (start, stop), piece in zip(ranges, pieces, strict=True):
            size = memoryview(piece).nbytes
            if size != stop - start:
                raise PlanError(f"{self.path} ends early: {size} of the {stop - start} bytes from {start} on are there")
        return pieces

    def content(self) -> Any:
        """Return all bytes of the file, as an object with the buffer protocol."""
        with self.naming("read"):
            return self.store.content(self.name)

    def remove(self) -> None:
        """Remove the directory and all below it."""
        with self.naming("removed"):
            self.store.remove(self.name)

    def rename(self, new: Location) -> None:
        """Give the directory a name that is free."""
        with self.naming("renamed"):
            self.store.rename(self.name, new.name)

    def check(self, state: FileState) -> None:
        """Raise PlanError where the file is no longer as it was."""
        now = self.state()
        if now != state:
            what = f"had {state.size} bytes then and has {now.size} now" if now.size != state.size else \
                "was written anew, with as many bytes"
            raise PlanError(f"{self.path} has changed since it was first looked at: it {what}. Scatter it again, and "
                            "write new data under another name")

    def write(self, pieces: Iterable[Any], nbytes: int) -> None:
        """Write a file as a whole; an existing one is replaced at once."""
        with self.naming("written"):
            self.store.write(self.name, pieces, nbytes)

    def check_writable(self) -> None:
        """Raise PlanError where nothing can be written beside it, as far as a directory that is made there tells.

        An object store has no directories, and is not asked.
        """
        if not self.store.renames:
            return
        beside = self.beside(uuid.uuid4().hex[:12])
        with self.naming("written"):
            self.store.make(beside.name)
            self.store.remove(beside.name)

    def names(self) -> dict[str, bool]:
        """Return the names in the directory, and whether each is a file."""
        with self.naming("listed"):
            return self.store.names(self.name)

    def is_there(self) -> bool:
        """Return whether there is a file or a directory."""
        with self.naming("looked for"):
            return self.store.is_there(self.name)

    def is_file(self) -> bool:
        """Return whether there is a file of this name."""
        with self.naming("looked for"):
            try:
                self.store.state(self.name)
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                return False
        return True

    @contextmanager
    def naming(self, done: str) -> Iterator[None]:
        """Turn what the store raises into a PlanError; ``done`` says what cannot be."""
        refusals: tuple[type[Exception], ...] = (PermissionError, *self.store.refusals)
        errors: tuple[type[Exception], ...] = (OSError, *self.store.errors)
        try:
            yield
        except FileNotFoundError as error:
            if done == "written":
                raise PlanError(f"{self.path} cannot be written: there can be no such file there; save to a directory "
                                "that exists or can be made") from error
            raise PlanError(f"there is no file {self.path}; a grid's files must be within reach of every node that "
                            "reads them") from error
        except (NotADirectoryError, FileExistsError) as error:
            raise PlanError(f"{self.path} cannot be {done}: there is a file where a directory would have to be"
                            ) from error
        except refusals as error:
            raise PlanError(f"{self.path} cannot be {done}: there is no permission: {_first_line(error)}"
                            + self.store.advice) from error
        except errors as error:
            raise PlanError(f"{self.path} cannot be {done}: {_first_line(error)}{self.store.advice}") from error


def _first_line(error: Exception) -> str:
    """Return the message of an error, without the lines that a library adds for its own authors."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
