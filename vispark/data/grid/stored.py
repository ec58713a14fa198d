"""Fields that lie in files: what tasks read blocks of, and the grid that files are looked up for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vispark.data.grid.key import BlockKey
from vispark.data.storage.locality import FileRange
from vispark.data.storage.opening import Locations, is_url


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

    @property
    def joins_rows(self) -> bool:
        """Whether neighbours along the last axis are better read together, by :meth:`blocks`."""
        return False

    def blocks(self, keys: Sequence[BlockKey], locations: Locations) -> list[np.ndarray]:
        """Return the cells of neighbours along the last axis; errors are those of :meth:`block`."""
        return [self.block(key, locations) for key in keys]

    def check_run(self, keys: Sequence[BlockKey]) -> None:
        """Check that neighbours along the last axis can be read in a reasonable time, where they are read together.

        Raises
        ------
        PlanError
            If they cannot.
        """

    def ranges(self, key: BlockKey) -> list[FileRange]:
        """Return the ranges of files that a block's cells are about in; none where that is not known."""
        return []


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
