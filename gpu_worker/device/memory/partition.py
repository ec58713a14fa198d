"""Partitions that a worker holds: arrays in host memory, on a device or both, grouped into blocks.

Content never changes once it is complete, so partitions share arrays freely; an array is counted, and its device
memory goes back when the last partition that has it is closed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gpu_worker.device.base import Buffer, Device
from gpu_worker.device.memory.grid.layout import BlockWindow
from gpu_worker.device.memory.spill_files import spilled
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.messages import Field, Signature
from gpu_worker.protocol.payload import field_bytes

_lock = threading.Lock()

#: Takes a buffer that nobody uses any more.
Recycle = Callable[[Buffer], None]


class HeldArray:
    """One field of a block, with a copy in host memory (uint8), a copy on the device, or both.

    On the device it is a contiguous array, or a window of memory that other blocks of its grid share.
    """

    __slots__ = ("_users", "buffer", "field", "host", "window")

    def __init__(self, field: Field, host: np.ndarray | None = None, buffer: Buffer | None = None,
                 window: BlockWindow | None = None):
        self.field = field
        self.host = host
        self.buffer = buffer
        self.window = window
        self._users = 1

    @property
    def nbytes(self) -> int:
        return field_bytes(self.field)

    @property
    def on_device(self) -> Buffer:
        """The device's memory of an array that is there, as all are that kernels read and write."""
        assert self.buffer is not None
        return self.buffer

    def share(self) -> HeldArray:
        """Return the array for one more block, which must close it too."""
        with _lock:
            self._users += 1
        return self

    def only(self, place: str) -> HeldArray:
        """Return a new array with this one's copy at ``place`` ("host" or "device") alone."""
        if place == "host":
            return HeldArray(self.field, host=self.host)
        return HeldArray(self.field, buffer=self.buffer.share() if self.buffer else None, window=self.window)

    def first(self, rows: int) -> HeldArray:
        """Return this use of the array for its first ``rows`` rows alone. Raises PlanError if the array has no rows."""
        if not self.field.shape:
            raise PlanError(f"the field {self.field.name!r} is one number, which has no rows to be fetched")
        if rows >= self.field.shape[0]:
            return self
        cut = replace(self.field, shape=(rows, *self.field.shape[1:]))
        host = None if self.host is None else self.host[:field_bytes(cut)]
        head = HeldArray(cut, host, self.buffer.share() if self.buffer else None)
        self.close()
        return head

    def rows(self, first: int, behind: int) -> HeldArray:
        """Return a new array of the rows from ``first`` to before ``behind``, in this one's host memory."""
        assert self.host is not None
        cut = replace(self.field, shape=(behind - first, *self.field.shape[1:]))
        row = self.nbytes // max(self.field.shape[0], 1)
        return HeldArray(cut, host=self.host[first * row:behind * row])

    def close(self, recycle: Recycle = Buffer.close) -> None:
        """End one use."""
        with _lock:
            self._users -= 1
            last = self._users == 0
        if last and self.buffer is not None:
            recycle(self.buffer)
            self.buffer = None


Block = tuple[HeldArray, ...]


def signature_of(block: Block) -> Signature:
    """Return the signature of a block."""
    return Signature(tuple(array.field for array in block))


@dataclass(frozen=True)
class PieceOfPartition:
    """Piece of a partition that a pass works on by itself: rows of its only block, or some of its blocks.

    Attributes
    ----------
    first : int
        The number of its first row, or of its first block.
    behind : int
        The number of the row, or block, behind it.
    of_rows : bool
        Whether it is of rows.
    whole : int
        How many rows, or blocks, the partition has.
    is_counted : bool
        Whether a step left some of its rows, so that the partition's ``count`` is that of these.
    of_one_key : bool
        Whether all its rows have one key: they are in order as they are, and stay in host memory.
    """

    first: int
    behind: int
    of_rows: bool
    whole: int
    is_counted: bool = False
    of_one_key: bool = False

    @property
    def is_last(self) -> bool:
        """Whether no other piece comes behind it."""
        return self.behind == self.whole


@dataclass
class Partition:
    """The content of one partition: its records' keys (a blob), and blocks on at most one device.

    Attributes
    ----------
    index : int
        Its number in the VRDD.
    count : int
        How many records it has.
    keys : ndarray of uint8 or None
        The keys as their owner encoded them.
    layout : bytes
        The owner's description of the records.
    blocks : sequence of Block
        One for elements, one a record for blocks.
    device : Device
        The one that its blocks are on, or are to be copied to.
    positions : sequence of int
        The places of its blocks in their grid, if they have one.
    tier : str
        Where it is kept, as a plan says, if that may change: on its device, or below it.
    piece : PieceOfPartition or None
        Which piece of the partition this is, where it is not all of it; keys and ``count`` are the partition's.
    """

    index: int
    count: int
    keys: np.ndarray | None
    layout: bytes
    blocks: Sequence[Block]
    device: Device
    variants: Sequence[int] = field(default=())
    positions: Sequence[int] = ()
    tier: str = ""
    piece: PieceOfPartition | None = None

    @property
    def arrays(self) -> list[HeldArray]:
        return [array for block in self.blocks for array in block]

    @property
    def rows(self) -> int:
        """How many rows its only block has."""
        return self.count if self.piece is None or self.piece.is_counted else self.piece.behind - self.piece.first

    @property
    def is_of_rows(self) -> bool:
        """Whether it is a piece that has some rows of its partition's only block."""
        return self.piece is not None and self.piece.of_rows

    @property
    def is_of_one_key(self) -> bool:
        """Whether it is a piece that has some rows of one key alone, in host memory."""
        return self.piece is not None and self.piece.of_one_key

    @property
    def place(self) -> str:
        """Where the content is: "host", "disk", a device's name, or several of them."""
        arrays = self.arrays
        on_disk = [array.host is not None and spilled(array.host) is not None for array in arrays]
        places = ["disk"] * any(on_disk)
        places += ["host"] * (not arrays or any(array.host is not None and not disk
                                                for array, disk in zip(arrays, on_disk, strict=True)))
        places += [self.device.name] * any(array.buffer is not None for array in arrays)
        return "+".join(places)

    @property
    def nbytes(self) -> int:
        """Bytes of one copy of the content."""
        return sum(array.nbytes for array in self.arrays) + (0 if self.keys is None else self.keys.nbytes)

    def host_bytes(self) -> int:
        """Return bytes held in host memory."""
        return sum(array.nbytes for array in self.arrays if array.host is not None and not spilled(array.host)) + (
            0 if self.keys is None else self.keys.nbytes)

    def share(self) -> Partition:
        """Return the content for one more holder, who must close it too."""
        return self.replacing({})

    def with_blocks(self, blocks: Sequence[Block]) -> Partition:
        """Return a partition like this one with other blocks, which are now its own to close."""
        return Partition(self.index, self.count, self.keys, self.layout, blocks, self.device, self.variants,
                         self.positions, self.tier, self.piece)

    def cut(self, first: int, behind: int) -> Partition:
        """Return the piece from one row of the partition's only block to before another, or from one to before another
        of its blocks, if it has several; its content in host memory is the partition's.
        """
        of_rows = len(self.blocks) == 1
        whole = self.blocks[0][0].field.shape[0] if of_rows else len(self.blocks)
        blocks = [tuple([array.rows(first, behind) for array in self.blocks[0]])] if of_rows else \
            [tuple([array.only("host") for array in block]) for block in self.blocks[first:behind]]
        variants, positions = (self.variants, self.positions) if of_rows else \
            (self.variants[first:behind], self.positions[first:behind])
        return Partition(self.index, self.count, self.keys, self.layout, blocks, self.device, variants, positions,
                         piece=PieceOfPartition(first, behind, of_rows, whole))

    def replacing(self, arrays: Mapping[int, HeldArray]) -> Partition:
        """Return a copy of the partition with some arrays, given by identity, replaced by others; it shares the rest.
        """
        return self.with_blocks([tuple(arrays[id(array)] if id(array) in arrays else array.share() for array in block)
                                 for block in self.blocks])

    def kept_at(self, place: str, layout: bytes, count: int) -> Partition:
        """Return a partition with the copy at ``place`` ("host" or "device") alone, to be held on to."""
        blocks = [tuple(array.only(place) for array in block) for block in self.blocks]
        keys = None if self.keys is None else self.keys.copy()
        return Partition(self.index, count, keys, layout, blocks, self.device, positions=self.positions)

    def close(self, recycle: Recycle = Buffer.close) -> None:
        """End this holder's use of the content."""
        for array in self.arrays:
            array.close(recycle)
