"""Arguments by reference: tables that workers hold, under the number of a VRDD."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass

from vispark.translate.ir.references import Reference


@dataclass(frozen=True)
class HeldValue:
    """Value that a worker holds under a number; with its bytes, where the worker is to hold it from then on."""

    number: int
    data: bytes = b""

    def __len__(self) -> int:
        return len(self.data)

    def __bytes__(self) -> bytes:
        return self.data


class TableReference(Reference):
    """Interface of a table that workers hold, as an argument. Two of them are equal if they are one."""

    @abstractmethod
    def bring(self) -> None:
        """Have a worker hold the table, computed from its lineage if it is not held.

        Raises
        ------
        VisparkError
            If that fails.
        """

    @abstractmethod
    def at(self, home: Hashable) -> HeldValue:
        """Return the value for a worker, given by its address and epoch."""

    @abstractmethod
    def lost(self) -> None:
        """Note that a worker did not find the table where it was taken to be."""

    @property
    @abstractmethod
    def depth(self) -> int:
        """Of how many tables, one made of the other, it is the last."""

    @abstractmethod
    def __str__(self) -> str: ...
