"""Exchange of rows by their keys among several nodes, of partitions that come to their devices in waves, or in pieces.

A node in waves says to the others what one says whose partitions are on devices all at once, in the same order, so that
each goes its own way. Its rows lie in host memory between the waves and the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from gpu_worker.device.base import Device
from gpu_worker.device.memory.partition import HeldArray, Partition
from gpu_worker.device.memory.spill_files import store, sync
from gpu_worker.execution.keys.node_rows import NodeMessages, NodePlan, NodeShare, rounds_of
from gpu_worker.execution.memory.row_chunks import row_bytes
from gpu_worker.execution.passes.run_context import RunContext
from gpu_worker.execution.steps.node_keys import NodeKeys
from gpu_worker.execution.steps.wave_exchange import AnyExchange, Partitioner, WaveExchange
from gpu_worker.protocol.errors import KeysRefused, PlanError
from gpu_worker.protocol.messages import Field
from gpu_worker.system.failpoints import failpoint


class HostMessages:
    """Rows in host memory that go to the other nodes of an exchange, and that come from them.

    Parameters
    ----------
    context : RunContext
        The pass, which has a world.
    plan : NodePlan
        The exchange.
    """

    def __init__(self, context: RunContext, plan: NodePlan):
        assert context.world is not None
        self.plan = plan
        self._context, self._world = context, context.world
        self._owners = [rank for rank in range(self._world.size) for _ in plan.owned(rank)]
        self._offsets: dict[int, np.ndarray] = {}
        self._sends: dict[int, np.ndarray] = {}
        self._receives: dict[int, np.ndarray] = {}

    @property
    def owned(self) -> range:
        """The new partitions of this node."""
        return self.plan.owned(self._world.rank)

    def take_memory(self) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
        """Take memory below devices for the rows, and return it, by node.

        Raises
        ------
        OutOfMemory, SpillError
            If there is none.
        """
        rank, peers = self._world.rank, [each for each in range(self._world.size) if each != self._world.rank]
        self._sends, self._receives = [self._taken(pairs) for pairs in (
            {peer: (rank, peer) for peer in peers}, {peer: (peer, rank) for peer in peers})]
        self._offsets = {peer: self.plan.packed(rank, peer)[0] for peer in self._sends}
        return self._sends, self._receives

    def _taken(self, pairs: dict[int, tuple[int, int]]) -> dict[int, np.ndarray]:
        sizes = {peer: self.plan.packed(*pair)[1] for peer, pair in pairs.items()}
        place = self._context.place_below
        return {peer: self._context.names.tiers.reserve(nbytes, place=place) for peer, nbytes in sizes.items()
                if nbytes}

    def put(self, place: int, part: int, behind: int, rows: Sequence[np.ndarray]) -> None:
        """Put rows (uint8, an array for each field) of this node's input at ``place``, for another node's new
        partition, behind as many that were put there before.
        """
        peer = self._owners[part]
        offsets = self._offsets[peer][place, :, part - self.plan.owned(peer).start]
        for memory, size, offset in zip(rows, self.plan.row_bytes.tolist(), offsets.tolist(), strict=True):
            start = offset + behind * size
            store(self._sends[peer][start:start + memory.nbytes], memory)

    def move(self, device: Device, parts: Sequence[Partition]) -> None:
        """Move the rows between the nodes, by a device's messages, and put those that came where they belong.

        Raises
        ------
        WorldLost
            If another node is gone.
        """
        messages = NodeMessages(self._world, device, self._context.streams.main(device))
        messages.move(self._sends, self._receives, rounds_of(self.plan, self._world.size))
        for peer, content in self._receives.items():
            self._unpack(peer, content, parts)
        self._sends, self._receives = {}, {}

    def _unpack(self, peer: int, content: np.ndarray, parts: Sequence[Partition]) -> None:
        """Copy another node's rows from the message to the new partitions."""
        offsets, counts = self.plan.packed(peer, self._world.rank)[0], self.plan.counts(peer)
        for at, partition in enumerate(parts):
            for place in range(len(counts)):
                rows = int(counts[place, partition.index])
                first = int(self.plan.rows_before(peer, place)[partition.index])
                for number, array in enumerate(partition.blocks[0] if rows else ()):
                    size, start = row_bytes(array), int(offsets[place, number, at])
                    assert array.host is not None
                    store(array.host[first * size:(first + rows) * size], content[start:start + rows * size])


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
        self._nodes = NodeKeys(context, (), self._step.parts)
        inputs = [value.index for value in values if value.count and value.blocks]
        self._places = {index: place for place, index in enumerate(inputs)}
        self._device = values[0].device if values else context.streams.devices[0]
        #: The rows of each input that go to each new partition, and those of them that have been moved.
        self._counts = np.zeros((len(inputs), self._step.parts), np.int64)
        self._filled = np.zeros_like(self._counts)
        self._refused = ""
        self._messages = HostMessages(
            context, NodePlan([NodeShare((), self._counts[:0])] * self._nodes.size, self._step.parts))

    def passes(self) -> Iterator[Callable[[list[Partition]], None]]:
        """Yield a function for each pass, which takes one wave after the other; other nodes are met between them."""
        if self._step.how != "hash":
            self._partitions = self._nodes.partitions(len(self._places))
            yield self._sample
            self._bounds = self._by.edges(self._nodes.looked_at(self._words, self._refused))
        yield self._count
        self._make_plan()
        failpoint("shuffle-counted")
        self._context.run_together(self._by, [], lambda _: self._nodes.all_have(self._memory))
        yield self._move
        failpoint("shuffle-scattered")
        self._messages.move(self._device, self._made)
        self._context.run_together(self._by, [],
                                   lambda _: sync(array.host for each in self._made for array in each.arrays))
        failpoint("shuffle-moved")

    # -- what is said -------------------------------------------------------------------------------------------------

    @contextmanager
    def _noting_refusal(self) -> Iterator[None]:
        """Note the reason for which this node cannot do its part, so that all nodes are told."""
        try:
            yield
        except (KeysRefused, PlanError) as error:
            self._refused = self._refused or error.message

    def _sample(self, values: list[Partition]) -> None:
        with self._noting_refusal():
            super()._sample(values)

    def _count(self, values: list[Partition]) -> None:
        with self._noting_refusal():
            super()._count(values)

    def _note(self, rows: np.ndarray, moved: Sequence[Partition]) -> None:
        super()._note(rows, moved)
        self._counts[self._places[moved[0].index]] += rows

    def _make_plan(self) -> None:
        """Make the plan of all nodes of all counts.

        Raises
        ------
        KeysRefused
            If a node cannot do its part; all of them raise it.
        """
        fields = tuple([(array.field.name, array.field.dtype, tuple(array.field.shape[1:])) for array in self._fields])
        inputs, counts = (tuple(self._places), self._counts) if fields else ((), self._counts[:0])
        plan = self._nodes.planned(NodeShare(inputs, counts, fields, self._refused))
        self._messages = HostMessages(self._context, plan)
        self._rows = plan.rows
        self._fields = [HeldArray(Field(name, dtype, (0, *row))) for name, dtype, row in plan.fields]

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _owned(self) -> range:
        return self._messages.owned

    def _memory(self) -> tuple[list[Partition], dict[int, np.ndarray], dict[int, np.ndarray]]:
        """Take memory below devices for the new partitions, and for what goes to other nodes and comes from them."""
        self._reserve()
        return self._made, *self._messages.take_memory()

    def _moved(self, exchange: AnyExchange, moved: Sequence[Partition]) -> None:
        """Move the rows of one input to this node's new partitions, and to what goes to others."""
        counts, starts, staged = self._staged(exchange, moved[0].device)
        place, owned = self._places[moved[0].index], self._messages.owned
        before, filled = self._messages.plan.rows_before(self._nodes.rank, place), self._filled[place]
        sizes = [row_bytes(array) for array in self._fields]
        for part in counts.nonzero()[0].tolist():
            start, rows = int(starts[part]), int(counts[part])
            if part in owned:
                self._written(self._made[part - owned.start].blocks[0], int(before[part] + filled[part]), staged, start,
                              rows)
            else:
                self._messages.put(place, part, int(filled[part]), [
                    memory[start * size:(start + rows) * size] for memory, size in zip(staged, sizes, strict=True)])
        filled += counts
