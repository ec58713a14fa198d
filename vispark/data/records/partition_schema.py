"""Schema of a partition's content, independent of where the content is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

import numpy as np

from gpu_worker.protocol.messages import Signature
from gpu_worker.protocol.payload import field_bytes
from vispark.data.records import Keyring, RecordLayout, unpack, unpack_keys


@dataclass(frozen=True)
class FetchedPartition:
    """Content of a partition as it came from a worker: its schema, the keys of pairs, and the blocks' arrays."""

    schema: PartitionSchema
    keys: list[Any]
    blocks: list[dict[str, np.ndarray]]


@dataclass(frozen=True)
class PartitionSchema:
    """Schema of one partition's content.

    Attributes
    ----------
    count : int
        Its records.
    keys : int
        The bytes of its keys' blob.
    layout : RecordLayout
        How records are rebuilt.
    signatures : tuple of Signature
        One for each block.
    positions : tuple of int
        Which of a grid's blocks these are, by number; empty where there is no grid.
    place : str
        Where the worker held it when it described it: a device's name, "host", "disk"; empty where it was not asked.
    """

    count: int
    keys: int
    layout: RecordLayout
    signatures: tuple[Signature, ...]
    positions: tuple[int, ...] = ()
    place: str = field(default="", compare=False)

    @property
    def only(self) -> str:
        """As :attr:`RecordLayout.only`."""
        return self.layout.only

    def records(self, keys: np.ndarray, blocks: Sequence[dict[str, np.ndarray]], keyring: Keyring) -> Iterator[Any]:
        """Return the records, from the keys' blob and the blocks' arrays."""
        if self.only == "keys":
            return iter(unpack_keys(keys.tobytes(), self.count, open=keyring.open))
        records = unpack(self.layout, self.count, keys.tobytes(), blocks, open=keyring.open)
        return records if self.only == "" else map(itemgetter(int(self.only)), records)

    def columns(self, keys: np.ndarray, blocks: list[dict[str, np.ndarray]], keyring: Keyring) -> FetchedPartition:
        """Return the arrays as they are, and the keys, from their blob and the blocks' arrays."""
        unpacked = unpack_keys(keys.tobytes(), self.count, open=keyring.open) if self.layout.keyed else []
        return FetchedPartition(self, unpacked, blocks)

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks and keys."""
        return self.keys + sum(field_bytes(each) for signature in self.signatures for each in signature.fields)

    def first(self, limit: int) -> PartitionSchema:
        """Return the schema of the first ``limit`` records; all records if they are pairs."""
        if limit < 0 or limit >= self.count or self.layout.keyed or self.only == "keys":
            return self
        if self.layout.kind == "blocks":
            return replace(self, count=limit, signatures=self.signatures[:limit])
        signatures = tuple(Signature(tuple(replace(described, shape=(limit, *described.shape[1:]))
                                           for described in signature.fields)) for signature in self.signatures)
        return replace(self, count=limit, signatures=signatures)
