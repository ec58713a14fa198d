"""Exchange of rows by their keys among several nodes, of partitions that come to their devices in waves, or in pieces.

A node in waves says to the others what one says whose partitions are on devices all at once, in the same order, so that
each goes its own way. Its rows lie in host memory between the waves and the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from gpu_worker.execution.node_rows import NodeMessages, NodePlan, NodeShare, rounds_of
from gpu_worker.execution.row_chunks import row_bytes
from gpu_worker.execution.run_context import RunContext
from gpu_worker.execution.steps.node_keys import NodeKeys
from gpu_worker.execution.steps.wave_exchange import Exchange, Partitioner, WaveExchange
from gpu_worker.memory.partition import HeldArray, Partition
from gpu_worker.memory.spill_files import sync
from gpu_worker.protocol.errors import KeysRefused, PlanError
from gpu_worker.protocol.messages import Field
from gpu_worker.system.failpoints import failpoint


class NodeWaveExchange(WaveExchange):
    """Exchange with the other nodes of a plan's world, in the passes of :class:`WaveExchange`.

    Parameters
    ----------
    partitioner, context, values
        As there; the partitions are this node's.
    """

    apart = True

    def __init__(self, partitioner: Partitioner, context: RunContext, values: Sequence[Partition]):
        super().__init__(partitioner, context, values)
        assert context.world is not None
        self._world = context.world
        self._nodes = NodeKeys(context, (), self._step.parts, partitioner.label)
        inputs = [value.index for value in values if value.count and value.blocks]
        self._places = {index: place for place, index in enumerate(inputs)}
        self._device = values[0].device if values else context.streams.devices[0]
        #: The rows of each input that go to each new partition, and those of them that have been moved.
        self._counts = np.zeros((len(inputs), self._step.parts), np.int64)
        self._gone = np.zeros_like(self._counts)
        self._refused = ""
        self._plan = NodePlan((), self._step.parts)
        #: The node of each new partition.
        self._owners: list[int] = []
        self._offsets: dict[int, np.ndarray] = {}
        self._sends: dict[int, np.ndarray] = {}
        self._receives: dict[int, np.ndarray] = {}

    def passes(self) -> Iterator[Callable[[list[Partition]], None]]:
        """Yield a function for each pass, which takes one wave after the other; other nodes are met between them."""
        if self._step.how != "hash":
            self._partitions = self._nodes.partitions(len(self._places))
            yield self._sample
            self._bounds = self._by.edges(self._nodes.looked_at(self._words, self._refused))
        yield self._count
        self._agree()
        failpoint("shuffle-counted")
        self._context.together(self._by, [], lambda _: self._take_memory())
        yield self._move
        failpoint("shuffle-scattered")
        stream = self._context.streams.main(self._device)
        NodeMessages(self._world, self._device, stream).move(self._sends, self._receives,
                                                             rounds_of(self._plan, self._world.size))
        for peer, content in self._receives.items():
            self._unpack(peer, content)
        self._sends, self._receives = {}, {}
        self._context.together(self._by, [], lambda _: sync(array.host for each in self._made for array in each.arrays))
        failpoint("shuffle-moved")

    # -- what is said -------------------------------------------------------------------------------------------------

    @contextmanager
    def _saying(self) -> Iterator[None]:
        """Note why this node cannot do its part, so that all nodes are told."""
        try:
            yield
        except (KeysRefused, PlanError) as error:
            self._refused = self._refused or error.message

    def _sample(self, values: list[Partition]) -> None:
        with self._saying():
            super()._sample(values)

    def _count(self, values: list[Partition]) -> None:
        with self._saying():
            super()._count(values)

    def _note(self, rows: np.ndarray, moved: Sequence[Partition]) -> None:
        super()._note(rows, moved)
        self._counts[self._places[moved[0].index]] += rows

    def _agree(self) -> None:
        """Learn what all nodes make of all counts.

        Raises
        ------
        KeysRefused
            If a node cannot do its part; all of them raise it.
        """
        fields = tuple([(array.field.name, array.field.dtype, tuple(array.field.shape[1:])) for array in self._fields])
        inputs, counts = (tuple(self._places), self._counts) if fields else ((), self._counts[:0])
        self._plan = self._nodes.planned(NodeShare(inputs, counts, fields, self._refused))
        self._rows = self._plan.rows
        self._fields = [HeldArray(Field(name, dtype, (0, *row))) for name, dtype, row in self._plan.fields]
        self._owners = [rank for rank in range(self._world.size) for _ in self._plan.owned(rank)]

    # -- memory -------------------------------------------------------------------------------------------------------

    def _owned(self) -> range:
        return self._plan.owned(self._world.rank)

    def _take_memory(self) -> None:
        """Take memory below devices for the new partitions, and for what goes to other nodes and comes from them.

        Raises
        ------
        OutOfMemory, SpillError
            If there is none on one of the nodes; before any row has been moved.
        """
        rank, peers = self._world.rank, [each for each in range(self._world.size) if each != self._world.rank]

        def memory() -> tuple[list[Partition], dict[int, np.ndarray], dict[int, np.ndarray]]:
            self._reserve()
            return (self._made, self._taken({peer: (rank, peer) for peer in peers}),
                    self._taken({peer: (peer, rank) for peer in peers}))

        _, self._sends, self._receives = self._nodes.all_have(memory)
        self._offsets = {peer: self._plan.packed(rank, peer)[0] for peer in self._sends}

    def _taken(self, pairs: dict[int, tuple[int, int]]) -> dict[int, np.ndarray]:
        sizes = {peer: self._plan.packed(*pair)[1] for peer, pair in pairs.items()}
        place = self._context.place_below
        return {peer: self._context.names.tiers.reserve(nbytes, place=place) for peer, nbytes in sizes.items()
                if nbytes}

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _moved(self, exchange: Exchange, moved: Sequence[Partition]) -> None:
        """Move the rows of one input to this node's new partitions, and to what goes to others."""
        counts, starts, staged = self._staged(exchange, moved[0].device)
        place, rank, first = self._places[moved[0].index], self._world.rank, self._owned().start
        before, gone = self._plan.before(rank, place), self._gone[place]
        for part in counts.nonzero()[0].tolist():
            start, rows, peer = int(starts[part]), int(counts[part]), self._owners[part]
            if peer == rank:
                self._written(self._made[part - first].blocks[0], int(before[part] + gone[part]), staged, start, rows)
                continue
            offsets = self._offsets[peer][place, :, part - self._plan.owned(peer).start]
            for memory, size, offset in zip(staged, map(row_bytes, self._fields), offsets.tolist(), strict=True):
                at = offset + int(gone[part]) * size
                self._sends[peer][at:at + rows * size] = memory[start * size:(start + rows) * size]
        gone += counts

    def _unpack(self, peer: int, content: np.ndarray) -> None:
        """Copy what came from another node to where it belongs."""
        offsets, counts = self._plan.packed(peer, self._world.rank)[0], self._plan.counts(peer)
        for at, partition in enumerate(self._made):
            for place in range(len(counts)):
                rows, first = int(counts[place, partition.index]), int(self._plan.before(peer, place)[partition.index])
                for number, array in enumerate(partition.blocks[0] if rows else ()):
                    size, start = row_bytes(array), int(offsets[place, number, at])
                    assert array.host is not None
                    array.host[first * size:(first + rows) * size] = content[start:start + rows * size]
