"""Rows that are exchanged among nodes by their keys: what each node says of its part, and the messages that carry rows.

A node's rows for another one are packed into one buffer, by new partition, field and input in this order, which both
sides work out from the counts that all have gathered. The buffers are moved in rounds of a fixed size, so that the
memory that messages leave from and arrive in does not grow with them, and serves again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from gpu_worker.device.base import Buffer, Device, Stream
from gpu_worker.device.memory.spill_files import spilled, store
from gpu_worker.exchange.base import JoinedWorld, MessageMemory, MessageSpec
from gpu_worker.protocol.errors import KeysRefused, WorldLost

#: The most bytes of a message.
MESSAGE_BYTES = 64 << 20
#: To which multiple the rows of a partition's field begin in a buffer.
_ALIGNED = 16
_TAG = 7

#: Name, dtype and shape of a row of each field.
RowFields = tuple[tuple[str, str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class NodeShare:
    """Share of one node in an exchange.

    Attributes
    ----------
    inputs : tuple of int
        The numbers of its partitions that have records, in order.
    counts : ndarray of int64
        Of shape (inputs, parts): how many rows of each go to each new partition.
    fields : RowFields
        What the rows consist of; empty where there are none.
    refused : str
        Why the node cannot do it; "" if it can.
    """

    inputs: tuple[int, ...]
    counts: np.ndarray
    fields: RowFields = ()
    refused: str = ""

    def encode(self) -> bytes:
        """Return the share as a message."""
        head = json.dumps([self.inputs, self.counts.shape, self.fields, self.refused]).encode()
        return len(head).to_bytes(8, "little") + head + np.ascontiguousarray(self.counts, np.int64).tobytes()

    @classmethod
    def decode(cls, data: bytes) -> NodeShare:
        """Return the share of a message. Raises WorldLost where it is none."""
        size = int.from_bytes(data[:8], "little")
        try:
            inputs, shape, fields, refused = json.loads(data[8:8 + size])
            counts = np.frombuffer(data[8 + size:], np.int64).reshape(shape)
        except ValueError as error:
            raise WorldLost("another node said something else than its share of an exchange") from error
        return cls(tuple(inputs), counts, tuple((name, dtype, tuple(row)) for name, dtype, row in fields), refused)


class NodePlan:
    """Plan of an exchange that all nodes make of the same shares.

    Parameters
    ----------
    shares : sequence of NodeShare
        In the order of ranks.
    parts : int
        How many new partitions there are.

    Attributes
    ----------
    fields : RowFields
        What the rows consist of.
    rows : ndarray of int64
        The rows of each new partition.

    Raises
    ------
    KeysRefused
        If a node cannot do its part, or their rows differ.
    """

    def __init__(self, shares: Sequence[NodeShare], parts: int):
        for share in shares:
            if share.refused:
                raise KeysRefused(share.refused)
        kinds = {share.fields for share in shares if share.inputs}
        if len(kinds) > 1:
            raise KeysRefused("partitions whose records differ in shape or dtype cannot be put together by their keys")
        self.fields: RowFields = next(iter(kinds), ())
        self.row_bytes = np.array([int(np.prod(row, dtype=np.int64)) * np.dtype(dtype).itemsize
                                   for _, dtype, row in self.fields], np.int64)
        self._shares, self._parts = shares, parts
        order = sorted((number, rank, place) for rank, share in enumerate(shares)
                       for place, number in enumerate(share.inputs))
        counts = np.array([shares[rank].counts[place] for _, rank, place in order], np.int64).reshape(-1, parts)
        before = np.cumsum(counts, axis=0) - counts
        self.rows = counts.sum(axis=0)
        self._before = {(rank, place): before[at] for at, (_, rank, place) in enumerate(order)}

    def owned(self, rank: int) -> range:
        """Return the new partitions that a node gets: as many as others, and neighbours."""
        size = len(self._shares)
        return range(-(-rank * self._parts // size), -(-(rank + 1) * self._parts // size))

    def rows_before(self, rank: int, place: int) -> np.ndarray:
        """Return the number of rows that each new partition has before those of a node's input."""
        return self._before[rank, place]

    def counts(self, rank: int) -> np.ndarray:
        """Return the number of rows of each input of a node that go to each new partition."""
        return self._shares[rank].counts

    def packed(self, sender: int, receiver: int) -> tuple[np.ndarray, int]:
        """Return the offsets of rows in the buffer from one node to another, in bytes, of shape (inputs, fields, parts
        of the receiver); and the bytes of the buffer.
        """
        owned = self.owned(receiver)
        counts = self._shares[sender].counts[:, owned.start:owned.stop].astype(np.int64)
        sizes = counts.T[:, None, :] * self.row_bytes[None, :, None]            # of part, field, input
        within = np.cumsum(sizes, axis=2) - sizes
        whole = -(-sizes.sum(axis=2) // _ALIGNED) * _ALIGNED
        ends = np.cumsum(whole.reshape(-1))
        starts = (ends - whole.reshape(-1)).reshape(whole.shape)
        return (starts[:, :, None] + within).transpose(2, 1, 0), int(ends[-1]) if len(ends) else 0


#: Rows for another node, or from it: on a device, or in host memory (uint8).
Content = TypeVar("Content", Buffer, np.ndarray)


class NodeMessages:
    """Messages between this node and the others of a world, of buffers on one device, or in host memory.

    Parameters
    ----------
    world : JoinedWorld
        The other nodes.
    device, stream
        Where the buffers are.
    """

    def __init__(self, world: JoinedWorld, device: Device, stream: Stream):
        self._world, self._device, self._stream = world, device, stream

    def move(self, sends: dict[int, Content], receives: dict[int, Content], rounds: int) -> None:
        """Move whole buffers, by rank, and wait for it; all nodes do so with the same number of ``rounds``.

        Raises
        ------
        WorldLost
            If another node is gone.
        """
        self._device.synchronize(stream=self._stream)
        for number in range(rounds):
            first = number * MESSAGE_BYTES
            gives, takes = [{rank: content for rank, content in contents.items() if content.nbytes > first}
                            for contents in (sends, receives)]
            if not (gives or takes):
                break
            staged = self._world.stage([self._spec(rank, content.nbytes) for rank, content in gives.items()],
                                       [self._spec(rank, content.nbytes) for rank, content in takes.items()])
            for memory, content in zip(staged.sends, gives.values(), strict=True):
                self._copy(memory, content, first, leaves=True)
            self._device.synchronize(stream=self._stream)
            self._world.result(self._world.start(staged, _is_ready))
            for memory, content in zip(staged.receives, takes.values(), strict=True):
                self._copy(memory, content, first, leaves=False)
            self._device.synchronize(stream=self._stream)

    def _copy(self, memory: MessageMemory, content: Buffer | np.ndarray, first: int, *, leaves: bool) -> None:
        """Copy the bytes of a message from ``first`` on to the memory that it leaves from, or from that in which it
        arrived.
        """
        nbytes = min(MESSAGE_BYTES, content.nbytes - first)
        part = content[first:first + nbytes] if isinstance(content, np.ndarray) else content.part(first, nbytes)
        staged = memory.host[:nbytes] if memory.buffer is None and memory.host is not None else memory.buffer
        assert staged is not None
        staged = staged if isinstance(staged, np.ndarray) else staged.part(0, nbytes)
        target, source = (staged, part) if leaves else (part, staged)
        if isinstance(target, np.ndarray):
            if isinstance(source, np.ndarray):
                store(target, source)
            else:
                self._copy_out(target, source)
        elif isinstance(source, np.ndarray):
            self._device.copy_in(target, source, stream=self._stream)
        else:
            self._device.copy_across(target, source, stream=self._stream)

    def _copy_out(self, target: np.ndarray, source: Buffer) -> None:
        """Copy from the device to host memory, or to the file that it is of, which only a write may store in."""
        through = target if spilled(target) is None else np.empty(target.nbytes, np.uint8)
        self._device.copy_out(through, source, stream=self._stream)
        if through is not target:
            self._device.synchronize(stream=self._stream)
            store(target, through)

    def _spec(self, rank: int, nbytes: int) -> MessageSpec:
        """Return a message of the same size for contents that differ little, so that its memory serves again."""
        return MessageSpec(self._device, rank, _TAG, min(MESSAGE_BYTES, 1 << max(nbytes - 1, 1).bit_length()))


def rounds_of(plan: NodePlan, size: int) -> int:
    """Return in how many rounds the buffers between all nodes are moved."""
    most = max([plan.packed(sender, receiver)[1] for sender in range(size) for receiver in range(size)
                if sender != receiver], default=0)
    return -(-most // MESSAGE_BYTES)


def _is_ready() -> None:
    """Say that what is sent is there."""
