"""Double buffering for loops: buffer sets that a replayed plan rewrites, and the partitions bound to them.

A loop that keeps its state, as in ``u = u.vmap(step).cache()``, needs the memory of two states: one is read while the
other is written. A :class:`BufferSet` is the memory that one recording of such a plan writes. A :class:`BoundBuffers`
is what the plan keeps: partitions in that set, and in those of other recordings where a field stays as it was. A
binding is bound to a name as a whole, and a buffer set may be written once no binding that lies in it is bound and
nobody else uses its memory.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence

from gpu_worker.device.base import Buffer
from gpu_worker.device.memory.partition import Partition

_lock = threading.RLock()


class BufferSet:
    """Buffers that a recording writes.

    Parameters
    ----------
    buffers : mapping of int to Buffer
        Of each, the number of the allocation that gave it when the plan was recorded.
    """

    def __init__(self, buffers: Mapping[int, Buffer]):
        self.buffers = {place: buffer.share() for place, buffer in buffers.items()}
        #: The uses of each buffer that are no reason not to write it: ours, and those of the bindings that lie in it.
        self._known = dict.fromkeys(self.buffers.values(), 1)
        self._held = 0
        self._closed = False

    @property
    def held(self) -> bool:
        """Whether something is bound that lies here, or is about to be."""
        return self._held > 0

    def take(self) -> bool:
        """Reserve the set for writing; return False if it is in use."""
        with _lock:
            if self._held or self._closed or any(buffer.users != known for buffer, known in self._known.items()):
                return False
            self._held = 1
            return True

    def hold(self) -> None:
        with _lock:
            self._held += 1

    def give(self) -> None:
        """End a :meth:`hold` or :meth:`take`."""
        with _lock:
            self._held -= 1

    def reclaim(self) -> None:
        """End the uses that a failed plan has left of this set, which no other plan uses."""
        for buffer, users in self._known.items():
            while buffer.users > users:
                buffer.close()

    def adjust_refs(self, buffers: Iterable[Buffer], change: int) -> bool:
        """Count the uses that bound partitions have of buffers of this set."""
        is_any = False
        with _lock:
            for buffer in buffers:
                if buffer in self._known:
                    self._known[buffer] += change
                    is_any = True
        return is_any

    def close(self) -> None:
        """Release the memory; partitions in the set still hold theirs."""
        with _lock:
            self._closed = True
        for buffer in self.buffers.values():
            buffer.close()
        self.buffers = {}


class BorrowedPartition(Partition):
    """Partition in a buffer set; sharing it takes uses of the memory."""

    def share(self) -> Partition:
        blocks = [tuple(array.only("device") for array in block) for block in self.blocks]
        return self.with_blocks(blocks)


class BoundBuffers:
    """Partitions that are bound to a name, and unbound, all at once.

    Parameters
    ----------
    name : str
        What it is called when it is bound.
    partitions : sequence of Partition
        Complete, or complete whenever it is bound; the binding's to close from now on.
    buffer_sets : iterable of BufferSet
        Where they may lie.

    Attributes
    ----------
    contents : dict of int to Partition
        By their number.
    version : int
        As :meth:`gpu_worker.device.memory.bindings.Bindings.version`; the same each time that it is bound, as all
        lies where it lay.
    """

    def __init__(self, name: str, partitions: Sequence[Partition], buffer_sets: Iterable[BufferSet]):
        self.name = name
        self.contents: dict[int, Partition] = {
            each.index: BorrowedPartition(each.index, each.count, each.keys, each.layout, each.blocks, each.device,
                                          each.variants,
                                          each.positions) for each in partitions}
        self.version = 0
        #: Where all of it lies; equal to another's where both lie in the same memory.
        self.place = tuple((buffer.device.name, buffer.address) for buffer in self._buffers())
        self._uses = self._bound = 0
        self.buffer_sets = tuple(buffer_set for buffer_set in buffer_sets if buffer_set.adjust_refs(self._buffers(), 1))

    def _buffers(self) -> list[Buffer]:
        return [array.buffer for partition in self.contents.values() for array in partition.arrays if array.buffer]

    @property
    def is_bound(self) -> bool:
        """Whether the partitions are bound to a name."""
        return self._bound > 0

    def hold(self) -> None:
        """Begin a use of the memory, whatever its content."""
        with _lock:
            self._uses += 1

    def drop(self) -> None:
        """End a use that :meth:`hold` began; the last one releases the memory. No work on the memory may be pending."""
        with _lock:
            self._uses -= 1
            last = self._uses == 0
            if last:
                for buffer_set in self.buffer_sets:
                    buffer_set.adjust_refs(self._buffers(), -1)
        if last:
            for partition in self.contents.values():
                partition.close()

    def enter(self) -> None:
        """Be bound to a name."""
        self._bound += 1
        for buffer_set in self.buffer_sets:
            buffer_set.hold()
        self.hold()

    def close(self) -> None:
        """Be unbound from the name."""
        self._bound -= 1
        for buffer_set in self.buffer_sets:
            buffer_set.give()
        self.drop()
