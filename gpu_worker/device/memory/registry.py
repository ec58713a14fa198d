"""Thread-safe registry of a session's names, for concurrent plans and requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from gpu_worker.device.memory.bindings import Bindings
from gpu_worker.device.memory.double_buffer import BoundBuffers
from gpu_worker.device.memory.partition import Block, Partition, signature_of
from gpu_worker.device.memory.tiers import Tiers
from gpu_worker.protocol.messages import Held, HeldVrdd, Signature


class Registry:
    """Thread-safe registry of a session's names: :class:`~gpu_worker.device.memory.bindings.Bindings` under one lock.

    Parameters
    ----------
    epoch : int
        Counts the session's device processes on this node.
    tiers : Tiers, optional
        The memory for content that may be larger than devices.
    """

    def __init__(self, epoch: int, tiers: Tiers | None = None):
        self._state: Bindings[Partition] = Bindings(epoch)
        self.tiers = tiers or Tiers()
        self._lock = threading.Lock()
        #: What is bound and not complete yet, by number: nobody sees it before it was waited for.
        self._coming: dict[int, Callable[[], None]] = {}
        #: The versions of VRDDs that a plan has made patches of beside what is held; negative once one was to leave
        #: them in its place.
        self._copied: dict[int, int] = {}

    def admit(self, epoch: int) -> None:
        """Refuse a request of another epoch, as :meth:`Bindings.admit` does."""
        self._state.admit(epoch)

    def called(self, vrdd: int) -> str:
        """Return a VRDD's number and, if it has one, its name."""
        return f"{vrdd} {self._state.names.get(vrdd, '')}".strip()

    def lookup(self, vrdd: int, partition: int) -> Partition:
        """Return a partition, shared with the caller, as :meth:`Bindings.lookup` does, once its content is complete."""
        self.complete(vrdd)
        with self._lock:
            return self._state.lookup(vrdd, partition)

    def version(self, vrdd: int) -> int:
        """Return the version of a VRDD's content, as :meth:`Bindings.version` does."""
        return self._state.version(vrdd)

    def binding(self, vrdd: int) -> BoundBuffers | None:
        """Return the buffers that all partitions of a VRDD are bound to, as :meth:`Bindings.binding` does; None if
        there are none.
        """
        binding = self._state.binding(vrdd)
        return binding if isinstance(binding, BoundBuffers) else None

    def is_in_patches(self, vrdd: int) -> bool:
        """Return whether the blocks of a grid are windows of patches already, and not as they came."""
        with self._lock:
            return all(array.window is not None for content in self._state.held(vrdd) for array in content.arrays)

    def keeps_patches(self, vrdd: int, count: int) -> bool:
        """Return whether a plan that copies all ``count`` partitions to patches is to :meth:`replace` the partitions by
        them.

        The second one is that makes them of all of it, where it is on devices alone.
        """
        version = self.version(vrdd)
        with self._lock:
            held = self._state.held(vrdd)
            if len(held) != count or any(array.host is not None for each in held for array in each.arrays):
                return False
            last = self._copied.get(vrdd)
            self._copied[vrdd] = version if last not in (version, -version) else -version
            return last == version

    def has_tried_patches(self, vrdd: int) -> bool:
        """Return whether :meth:`keeps_patches` has returned true for the present content, and the content is not
        replaced.
        """
        return self._copied.get(vrdd, 0) == -self.version(vrdd) < 0

    def replace(self, vrdd: int, version: int, blocks: Mapping[int, Sequence[Block]]) -> bool:
        """Hold the blocks of all partitions of a VRDD elsewhere, in arrays that are its own from then on.

        False, and nothing is done, where it has another version than they were made of.
        """
        with self._lock:
            if self._state.version(vrdd) != version or self._state.binding(vrdd) is not None:
                return False
            self._state.replace(vrdd, [each.with_blocks(blocks[each.index]) for each in self._state.held(vrdd)])
            return True

    def exchange(self, vrdd: int, content: Partition) -> bool:
        """Hold a partition's content elsewhere; False, and ``content`` closed, where it is not held any more."""
        with self._lock:
            return self._state.exchange(vrdd, content)

    def borrow(self, versions: Mapping[int, int]) -> bool:
        """Borrow VRDDs in the given versions, as :meth:`Bindings.borrow` does."""
        with self._lock:
            return self._state.borrow(versions)

    def give_back(self, vrdds: Iterable[int]) -> None:
        """Return borrowed VRDDs, as :meth:`Bindings.give_back` does."""
        with self._lock:
            self._state.give_back(vrdds)

    def require(self, vrdd: int, partitions: Iterable[int]) -> None:
        """Raise PartitionMissing if one of some partitions is not held."""
        for partition in partitions:
            self.lookup(vrdd, partition).close()

    def share(self, vrdd: int) -> list[Partition]:
        """Return all partitions held of a VRDD, shared with the caller."""
        self.complete(vrdd)
        with self._lock:
            return [content.share() for content in self._state.held(vrdd)]

    def held(self, vrdd: int) -> list[Partition]:
        """Return all partitions held of a VRDD, for a look at where they are; not shared."""
        with self._lock:
            return self._state.held(vrdd)

    def bind(self, vrdd: int, name: str, content: Partition) -> bool:
        """Bind content to a name, as :meth:`Bindings.bind` does."""
        with self._lock:
            return self._state.bind(vrdd, name, content)

    def bind_all(self, vrdd: int, binding: BoundBuffers, wait: Callable[[], None] | None = None) -> None:
        """Bind all partitions of a VRDD, as :meth:`Bindings.bind_all` does; ``wait``, if given, returns when the
        content is complete.
        """
        with self._lock:
            if wait is not None:
                self._coming.setdefault(vrdd, wait)
            self._state.bind_all(vrdd, binding)

    def is_incomplete(self, vrdd: int) -> bool:
        """Return whether the bound content is not complete yet."""
        return vrdd in self._coming

    def complete(self, vrdd: int) -> None:
        """Wait until the bound content is complete."""
        wait = self._coming.get(vrdd)
        if wait is not None:
            wait()

    def mark_complete(self, vrdds: Iterable[int]) -> None:
        """Record that the bound content is complete."""
        for vrdd in vrdds:
            self._coming.pop(vrdd, None)

    def release(self, vrdds: Collection[int]) -> None:
        """Release VRDDs, as :meth:`Bindings.release` does, and forget their copies."""
        with self._lock:
            self._state.release(vrdds)
            for vrdd in vrdds:
                self._copied.pop(vrdd, None)

    def retain(self, vrdd: int, partitions: Iterable[int], *, only: bool = True) -> None:
        """Retain some partitions of a VRDD and release others, as :meth:`Bindings.retain` does."""
        with self._lock:
            self._state.retain(vrdd, partitions, only=only)

    def close(self) -> None:
        """Release everything."""
        with self._lock:
            self._state.release(list(self._state.vrdds()))

    def describe(self, vrdd: int, partitions: Iterable[int]) -> tuple[tuple[Signature, ...], tuple[Held, ...]]:
        """Return the partitions held of a VRDD, all of them if none are named, and the signatures of their blocks."""
        signatures: dict[Signature, int] = {}
        self.complete(vrdd)
        with self._lock:
            held = tuple(
                Held(partition.index, partition.count, 0 if partition.keys is None else partition.keys.nbytes,
                     partition.layout,
                     tuple(signatures.setdefault(signature_of(block), len(signatures)) for block in partition.blocks),
                     tuple(partition.positions), partition.place)
                for partition in self._state.held(vrdd, partitions))
        return tuple(signatures), held

    def report(self) -> tuple[tuple[HeldVrdd, ...], int]:
        """Return a line for each VRDD, and the bytes of host memory that all of them take."""
        with self._lock:
            held = {vrdd: self._state.held(vrdd) for vrdd in self._state.vrdds()}
            lines = tuple(_line(vrdd, self._state.names[vrdd], partitions) for vrdd, partitions in held.items())
            return lines, sum(partition.host_bytes() for partitions in held.values() for partition in partitions)


def _line(vrdd: int, name: str, partitions: list[Partition]) -> HeldVrdd:
    dtypes = {array.field.dtype for partition in partitions for array in partition.arrays}
    places = {partition.place for partition in partitions}
    return HeldVrdd(vrdd, name, len(partitions), ", ".join(sorted(dtypes)),
                    sum(partition.nbytes for partition in partitions), ", ".join(sorted(places)))
