"""Files of a grid's fields: which format a path is of, and how a task reads a block of it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vispark.grid import npy
from vispark.grid.key import BlockKey
from vispark.storage.opening import Locations, is_url, located


class StoredField(ABC):
    """Interface of a field in files. The driver makes it, and tasks read its blocks."""

    path: str

    @abstractmethod
    def block(self, key: BlockKey, locations: Locations) -> np.ndarray:
        """Return a block's cells.

        Raises
        ------
        PlanError
            If they cannot be read, or what is there is of another shape than the block.
        """


@dataclass(frozen=True)
class FilesOf:
    """The grid that files are looked up for.

    Parameters
    ----------
    shape, splits : tuple of int
        The grid's.
    fields : sequence of str
        The names of its fields; empty where it names none.
    local : bool
        Whether tasks run on this machine, so that what they read is seen here too. URLs always are.
    """

    shape: tuple[int, ...]
    splits: tuple[int, ...]
    fields: Sequence[str] = ()
    local: bool = True

    def sees(self, path: str) -> bool:
        """Return whether the driver sees what tasks will see at a path."""
        return self.local or is_url(path)


#: A format's function: the field of a path, or its fields by name, for a grid; the name is of the one field wanted.
Opener = Callable[[str, FilesOf, str], "StoredField | dict[str, StoredField]"]

#: How the files of a format are opened, by how their names end.
FORMATS: dict[str, Opener] = {}


def opened(path: Any, files: FilesOf, name: str = "") -> StoredField | dict[str, StoredField]:
    """Return the field of a path, or its fields by name.

    Parameters
    ----------
    path : str or path
        A file or a directory.
    files : FilesOf
        The grid.
    name : str
        The one field that is wanted; empty for what the path has.

    Raises
    ------
    PlanError
        If there is no such file, or it does not fit the grid.
    """
    path = os.fspath(path)
    return FORMATS.get(os.path.splitext(path.rstrip("/"))[1].lower(), _directory)(path, files, name)


def _directory(path: str, files: FilesOf, name: str) -> StoredField | dict[str, StoredField]:
    """Return the fields of a directory with a ``.npy`` file, or a directory of blocks, for each; or of blocks alone."""
    names = [] if name else list(files.fields)
    if not name and not names and files.sees(path):
        names = npy.saved_fields(path, (0,) * len(files.splits))
    if not names:
        return _blocks(path, files)
    fields = {}
    for each in names:
        where = npy.saved_field(path, each)
        fields[each] = _whole(where, files, each) if where.endswith(".npy") else _blocks(where, files)
    return fields


# -- .npy -------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class _WholeNpy(StoredField):
    """Field in one ``.npy`` file; without a header where the driver did not see it."""

    path: str
    file: npy.NpyFile | None

    def block(self, key: BlockKey, locations: Locations) -> np.ndarray:
        """Return a block's cells, by ranges of the file."""
        return npy.read_part(self.file or self.path, key.grid.shape, key.slices, locations)


@dataclass(frozen=True)
class _BlocksNpy(StoredField):
    """Field in a directory with a ``.npy`` file for each block."""

    path: str

    def block(self, key: BlockKey, locations: Locations) -> np.ndarray:
        """Return a block's cells, from its own file."""
        return npy.read_block(npy.block_path(self.path, key.position), key.shape, locations)


def _whole(path: str, files: FilesOf, name: str) -> StoredField:
    if not files.sees(path):
        return _WholeNpy(path, None)
    file = npy.NpyFile.at(located(path))
    npy.check_shape(file, files.shape)
    return _WholeNpy(path, file)


def _blocks(path: str, files: FilesOf) -> StoredField:
    if files.sees(path):
        npy.check_blocks(path, files.splits, np.ndindex(*files.splits))
    return _BlocksNpy(path)


FORMATS[".npy"] = _whole
