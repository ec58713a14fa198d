"""Cells of other nodes' blocks that a grid's steps by planes depend on: they come before each pass, to host memory.

Every node works out the boxes that each of them sends to each from what all have said of their blocks, so that a
message carries cells alone: field by field, box by box.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from math import prod

import numpy as np

from gpu_worker.device.memory.grid.boxes import Box, Triple, around
from gpu_worker.device.memory.grid.patches import Domain
from gpu_worker.device.memory.partition import HeldArray
from gpu_worker.device.memory.spill_files import store, sync
from gpu_worker.exchange.base import JoinedWorld
from gpu_worker.execution.keys.node_rows import MESSAGE_BYTES, NodeMessages
from gpu_worker.execution.passes.run_context import RunContext
from gpu_worker.protocol.messages import Field

#: An array of cells, and which they are.
HeldCells = tuple[Box, HeldArray]


class NodePlanes:
    """The other nodes of a world that run the same steps by planes.

    Parameters
    ----------
    context : RunContext
        The pass.
    world : JoinedWorld
        The other nodes.
    domain : Domain
        What all have said of their blocks.
    """

    def __init__(self, context: RunContext, world: JoinedWorld, domain: Domain):
        self._context, self._world, self._domain = context, world, domain
        self._shape, self._axis = domain.lattice.shape, 3 - domain.axes

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The boxes of cells of this node."""
        return self._domain.others[self._world.rank]

    def least(self, number: int) -> int:
        """Return the least of the numbers that all nodes say."""
        return min(int.from_bytes(each) for each in self._world.gather(number.to_bytes(8)))

    def answers(self, own: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the answers (uint64) of all nodes to the same questions."""
        gathered = self._world.gather(b"".join(each.tobytes() for each in own))
        return [found for each in gathered for found in np.frombuffer(each, np.uint64).reshape(-1, len(own[0]))]

    def exchanged(self, held: Sequence[HeldCells], fields: dict[str, np.dtype], widths: Triple,
                  periodic: Sequence[bool]) -> list[HeldCells]:
        """Return the cells of other nodes that are within ``widths`` of those here, and give them theirs.

        Parameters
        ----------
        held : sequence of Held
            The arrays of this node's blocks, in host memory.
        fields : dict of str to dtype
            The fields.
        widths : (int, int, int)
            On how many cells along each axis new values depend.
        periodic : sequence of bool
            Whether each axis goes on at its other end.

        Raises
        ------
        OutOfMemory, SpillError
            If there is no room for what is sent or what comes.
        WorldLost
            If another node is gone.
        """
        context, rank, ranks = self._context, self._world.rank, range(self._world.size)
        boxes = {(sender, receiver): self._boxes(sender, receiver, widths, periodic)
                 for sender in ranks for receiver in ranks if sender != receiver}
        cell = sum(dtype.itemsize for dtype in fields.values())
        sizes = {pair: cell * sum(box.size for box in several) for pair, several in boxes.items()}
        reserve = partial(context.names.tiers.reserve, place=context.place_below)
        sends = {peer: reserve(sizes[rank, peer]) for peer in ranks if sizes.get((rank, peer))}
        receives = {peer: reserve(sizes[peer, rank]) for peer in ranks if sizes.get((peer, rank))}
        for peer, memory in sends.items():
            for box, array in self._placed(boxes[rank, peer], fields, memory):
                assert array.host is not None
                store(array.host, packed_cells([each for each in held if each[1].field.name == array.field.name], box,
                                               np.dtype(array.field.dtype)))
        device = context.streams.devices[0]
        messages = NodeMessages(self._world, device, context.streams.main(device))
        messages.move(sends, receives, -(-max(sizes.values(), default=0) // MESSAGE_BYTES))
        sync((*sends.values(), *receives.values()))
        return [each for peer, memory in receives.items() for each in self._placed(boxes[peer, rank], fields, memory)]

    def _boxes(self, sender: int, receiver: int, widths: Triple, periodic: Sequence[bool]) -> tuple[Box, ...]:
        """Return the boxes of cells that one node sends to another."""
        return self._domain.once((sender, receiver, widths, tuple(periodic)), lambda: tuple(dict.fromkeys(
            shared for box in self._domain.others[receiver] for wanted in around(box, widths, self._shape, periodic)
            for shared in map(wanted.shared, self._domain.others[sender]) if shared.size)))

    def _placed(self, boxes: Iterable[Box], fields: dict[str, np.dtype], memory: np.ndarray) -> Iterator[HeldCells]:
        """Yield the arrays of a message's cells."""
        start = 0
        for name, dtype in fields.items():
            for box in boxes:
                nbytes = prod(box.shape) * dtype.itemsize
                yield box, HeldArray(Field(name, dtype.str, box.shape[self._axis:]), host=memory[start:start + nbytes])
                start += nbytes


def packed_cells(held: Iterable[HeldCells], box: Box, dtype: np.dtype) -> np.ndarray:
    """Return a box of cells (uint8), one behind the other, of arrays in host memory that have them."""
    cells = np.empty(box.shape, dtype)
    for place, array in held:
        shared = box.shared(place)
        if shared.size:
            assert array.host is not None
            cells[_slices(shared, box)] = array.host.view(dtype).reshape(place.shape)[_slices(shared, place)]
    return cells.reshape(-1).view(np.uint8)


def _slices(box: Box, within: Box) -> tuple[slice, ...]:
    """Return the slices by which an array of one box of cells has those of another one."""
    return tuple(map(slice, *(np.subtract(end, within.low).tolist() for end in (box.low, box.high))))
