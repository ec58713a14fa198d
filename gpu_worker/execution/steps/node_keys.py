"""Exchange of rows by their keys among the devices of several nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import numpy as np

from gpu_worker.device.base import Buffer
from gpu_worker.device.memory.partition import HeldArray, Partition
from gpu_worker.exchange.base import JoinedWorld
from gpu_worker.execution.keys.node_rows import NodeMessages, NodePlan, NodeShare, RowFields, rounds_of
from gpu_worker.execution.keys.row_exchange import OrderedExchange, RowExchange
from gpu_worker.execution.keys.row_keys import in_order
from gpu_worker.execution.passes.run_context import RunContext
from gpu_worker.protocol.errors import KeysRefused, OutOfMemory, PlanError, WorldLost
from gpu_worker.protocol.messages import Field
from gpu_worker.system.failpoints import failpoint

_Content = TypeVar("_Content")

#: Exchange of one partition's rows, which have been counted.
Counted = RowExchange | OrderedExchange
#: Returns new partitions, with memory for their rows, of fields and the rows of all partitions.
Allocate = Callable[[Sequence[HeldArray], np.ndarray, Sequence[int]], list[Partition]]


class NodeKeys:
    """Exchange of the rows of one plan with the other nodes of its world.

    Parameters
    ----------
    context : RunContext
        The pass, which has a world.
    values : sequence of Partition
        This node's partitions that have records, in their order.
    parts : int
        How many new partitions there are on all nodes.
    """

    def __init__(self, context: RunContext, values: Sequence[Partition], parts: int):
        assert context.world is not None
        self._world: JoinedWorld = context.world
        self._context, self._values, self._parts = context, values, parts

    @property
    def rank(self) -> int:
        """This node's place among the nodes."""
        return self._world.rank

    @property
    def size(self) -> int:
        """The number of nodes."""
        return self._world.size

    def bounds(self, samples: Callable[[int], Sequence[np.ndarray]]) -> np.ndarray:
        """Return words (uint64) of the keys that all nodes have looked at, in their order; a row for each key.

        ``samples`` gives those of this node's partitions, told how many partitions all nodes have: they are the same on
        whichever node a partition lies, as new partitions that were kept must fit those that are made again.

        Raises
        ------
        KeysRefused
            If a node cannot give its own; all of them raise it.
        """
        partitions, own, refused = self.partitions(len(self._values)), list[np.ndarray](), ""
        try:
            own += samples(partitions)
        except (KeysRefused, PlanError) as error:
            refused = error.message
        return self.looked_at(own, refused)

    def partitions(self, own: int) -> int:
        """Return the number of partitions with records on all nodes together; this one has ``own``."""
        return sum(int.from_bytes(each) for each in self._world.gather(own.to_bytes(8)))

    def looked_at(self, own: Sequence[np.ndarray], refused: str) -> np.ndarray:
        """Gather the words of keys that each node drew, or the reason for which it cannot, and return all in their
        order.

        Raises
        ------
        KeysRefused
            If a node cannot; all of them raise it.
        """
        own_answer = b"-" + refused.encode() if refused else \
            b"+" + bytes([own[0].shape[1]]) + np.concatenate(own).tobytes() if own else b"+"
        answers = self._world.gather(own_answer)
        for answer in answers:
            if answer[:1] != b"+":
                raise KeysRefused(answer[1:].decode(errors="replace"))
        words = [np.frombuffer(each[2:], np.uint64).reshape(-1, each[1]) for each in answers if len(each) > 1]
        return in_order(np.concatenate(words or [np.zeros((0, 1), np.uint64)]))

    def plan_counted(self, count: Callable[[], Sequence[Counted]]) -> tuple[NodePlan, Sequence[Counted]]:
        """Have this node's rows counted, and return what all nodes make of all counts.

        Raises
        ------
        KeysRefused
            If a node cannot do its part; all of them raise it.
        """
        exchanges: Sequence[Counted] = ()
        inputs = tuple(value.index for value in self._values)
        try:
            exchanges = count()
            counts = np.array([each.rows for each in exchanges]).astype(np.int64).reshape(len(inputs), self._parts)
            share = NodeShare(inputs, counts, self._fields())
        except (KeysRefused, PlanError) as error:
            share = NodeShare((), np.zeros((0, self._parts), np.int64), (), error.message)
        return self.planned(share), exchanges

    def planned(self, share: NodeShare) -> NodePlan:
        """Exchange the nodes' shares, and return the plan that each makes of all of them.

        Raises
        ------
        KeysRefused
            If a node cannot do its part; all of them raise it.
        """
        return NodePlan([NodeShare.decode(each) for each in self._world.gather(share.encode())], self._parts)

    def _fields(self) -> RowFields:
        return tuple((array.field.name, array.field.dtype, tuple(array.field.shape[1:]))
                     for array in self._values[0].blocks[0]) if self._values else ()

    def moved(self, plan: NodePlan, exchanges: Sequence[Counted], allocate: Allocate) -> list[Partition]:
        """Return this node's new partitions, with the rows of all nodes.

        Raises
        ------
        OutOfMemory
            If this node has no room for its own; before any row has been moved.
        WorldLost
            If another node has none, or is gone.
        """
        rank, size, scratch = self._world.rank, self._world.size, self._context.scratch
        peers = [each for each in range(size) if each != rank]
        device = self._values[0].device if self._values else self._context.streams.devices[0]
        stream = self._context.streams.main(device)
        fields = [HeldArray(Field(name, dtype, (0, *row))) for name, dtype, row in plan.fields]

        def buffers(pairs: dict[int, tuple[int, int]]) -> dict[int, Buffer]:
            sizes = {peer: plan.packed(*pair)[1] for peer, pair in pairs.items()}
            return {peer: scratch.allocate(nbytes, device, stream) for peer, nbytes in sizes.items() if nbytes}

        def memory() -> tuple[list[Partition], dict[int, Buffer], dict[int, Buffer]]:
            return (allocate(fields, plan.rows, plan.owned(rank)),
                    buffers({peer: (rank, peer) for peer in peers}), buffers({peer: (peer, rank) for peer in peers}))

        parts, sends, receives = self.all_have(memory)
        for place, exchange in enumerate(exchanges):
            bases = np.zeros((len(fields), self._parts), np.uint64)
            for peer, buffer in sends.items():
                owned = plan.owned(peer)
                bases[:, owned.start:owned.stop] = buffer.address + plan.packed(rank, peer)[0][place].astype(np.uint64)
            owned = plan.owned(rank)
            own = np.array([[_address(each, at) for each in parts] for at in range(len(fields))], np.uint64)
            behind = plan.rows_before(rank, place)[owned.start:owned.stop] * plan.row_bytes[:, None]
            bases[:, owned.start:owned.stop] = own.reshape(len(fields), len(parts)) + behind.astype(np.uint64)
            exchange.move(bases)
        self._wait([*self._values, *parts])
        failpoint("shuffle-scattered")
        NodeMessages(self._world, device, stream).move(sends, receives, rounds_of(plan, size))
        for peer, buffer in receives.items():
            self._unpack(plan, peer, buffer, parts)
        self._wait(parts)
        for buffer in (*sends.values(), *receives.values()):
            scratch.recycle(buffer, stream)
        return parts

    def all_have(self, memory: Callable[[], tuple[list[Partition], dict[int, _Content], dict[int, _Content]]]
                 ) -> tuple[list[Partition], dict[int, _Content], dict[int, _Content]]:
        """Allocate the new partitions and the buffers for messages by a function, and return them once all nodes have
        theirs.

        Raises
        ------
        OutOfMemory
            If this node has no room, also where it does not hear of the others: they may have left, as they have none.
        WorldLost
            If it has room and another node has none, or is gone.
        """
        try:
            allocated = memory()
        except OutOfMemory as error:
            with suppress(WorldLost):
                self._world.gather(error.message.encode())
            raise
        for message in self._world.gather(b""):
            if message:
                raise WorldLost(f"another node has no room: {message.decode(errors='replace')}")
        return allocated

    def _unpack(self, plan: NodePlan, peer: int, buffer: Buffer, parts: Sequence[Partition]) -> None:
        """Enqueue the copies of another node's rows from the message to the new partitions."""
        places, _ = plan.packed(peer, self._world.rank)
        counts = plan.counts(peer)
        for at, partition in enumerate(parts):
            stream = self._context.streams.main(partition.device)
            for place in range(len(counts)):
                rows = int(counts[place, partition.index])
                for number, array in enumerate(partition.blocks[0] if rows else ()):
                    row = int(plan.row_bytes[number])
                    target = array.on_device.part(int(plan.rows_before(peer, place)[partition.index]) * row, rows * row)
                    if target.nbytes:
                        source = buffer.part(int(places[place, number, at]), target.nbytes)
                        partition.device.copy_across(target, source, stream=stream)

    def _wait(self, values: Sequence[Partition]) -> None:
        for device in dict.fromkeys([value.device for value in values]):
            device.synchronize(stream=self._context.streams.main(device))


def check_reach(values: Sequence[Partition]) -> None:
    """Raise KeysRefused where this node's devices do not write to each other's memory."""
    devices = list(dict.fromkeys([value.device for value in values]))
    for one in devices:
        for other in devices:
            if one is not other and not one.reaches(other):
                raise KeysRefused(f"{one.name} does not reach the memory of {other.name}")


def _address(partition: Partition, place: int) -> int:
    buffer = partition.blocks[0][place].buffer if partition.blocks else None
    return 0 if buffer is None else buffer.address
