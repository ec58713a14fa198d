"""Exchanges: operations that fill ghost cells, from the patches of a device, of other devices and of other nodes.

On one device all boxes of all fields are one launch, on the stream that computes. What goes to other devices is one
launch more for each device that has something to give, which writes straight into the others' memory, on a stream
beside; a device without access to another's memory packs, copies and unpacks instead. What is given for the sides of
the grid is written once into a buffer, which remembers it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from gpu_worker.device.base import Buffer, Device, Stream
from gpu_worker.device.memory.grid.boxes import AXES, Box, Triple
from gpu_worker.device.memory.grid.ghosts import Copied, Filled, slab_box
from gpu_worker.device.memory.grid.layout import Copy, packed
from gpu_worker.device.memory.grid.patches import Cells, Domain
from gpu_worker.device.memory.grid.routes import Across, copy_of, routes
from gpu_worker.exchange.base import JoinedWorld
from gpu_worker.execution.grid.context import GridContext, Operation
from gpu_worker.execution.grid.continued import Continued
from gpu_worker.execution.grid.node_exchange import exchange_with_nodes
from gpu_worker.protocol.errors import PlanError

#: Of a patch, whether ghost cells below and above each axis come later than the rest.
LateEnds = tuple[tuple[bool, bool], ...]

NOT_LATE: LateEnds = ((False, False),) * 3


@dataclass(frozen=True)
class GhostDependency:
    """Dependency on late ghost cells of a device: a stream of the device itself, or of the device that sends the cells.
    """

    device: Device
    other: Stream
    of: Device

    def on(self, stream: Stream) -> Operation:
        """Return the operation by which one of the device's streams waits for the cells."""
        return partial(self.device.wait, self.other, stream=stream, of=self.of)


@dataclass
class Exchange:
    """Operations of one exchange of some fields.

    Attributes
    ----------
    filled : list of Operation
        What is given for sides of the grid, where it is not there yet: to be done at any time before the others, once
        for all that come, as long as the memory is this field's.
    first : list of Operation
        To be done before anything that reads ghost cells.
    beside : list of Operation
        To be done then, and not to be waited for by what reads no late ghost cell.
    after : list of Operation
        To be done before what reads late ghost cells.
    came : list of Came
        To be waited for then.
    settled : list of Operation
        To be done before anything is computed anew.
    late : tuple of Late
        Of each patch.
    """

    filled: list[Operation] = field(default_factory=list)
    first: list[Operation] = field(default_factory=list)
    beside: list[Operation] = field(default_factory=list)
    after: list[Operation] = field(default_factory=list)
    came: list[GhostDependency] = field(default_factory=list)
    settled: list[Operation] = field(default_factory=list)
    late: tuple[LateEnds, ...] = ()


def exchange(domain: Domain, content: Mapping[str, Cells], halos: Sequence[Continued], context: GridContext,
             tags: dict[Buffer, tuple[Any, ...]], world: JoinedWorld | None = None) -> Exchange:
    """Return the operations that fill the ghost cells of some fields.

    Parameters
    ----------
    domain : Domain
    content : mapping of str to Cells
        The fields of the domain's patches.
    halos : sequence of Continued
        The fields to exchange, and how.
    context : GridContext
    tags : dict
        What was filled of each buffer from the sides, which is brought up to date.
    world : JoinedWorld, optional
        The other nodes.
    """
    if halos and not domain.is_complete:
        raise PlanError("ghost cells are exchanged among all blocks of a grid, and some are neither here nor with "
                        "another worker that runs the plan")
    result = Exchange(late=(NOT_LATE,) * len(domain.patches))
    if not halos:
        return result
    fields = [content[halo.field] for halo in halos]
    routed = routes(domain, tuple((halo.below, halo.above, halo.rules, cells.dtype.itemsize)
                                  for halo, cells in zip(halos, fields, strict=True)))
    addresses = np.array([buffer.address for cells in fields for buffer in cells.buffers], np.int64)
    _fill(domain, content, halos, context, tags, result)
    for device, route in routed.local:
        result.first += context.routing(device, route, addresses, context.stream(device))
    if routed.across:
        _across(domain, fields, routed.across, addresses, context, result)
    if world is None:
        result.late = domain.once(("late", routed), lambda: tuple(late_sides(domain.boxes, routed.crossing)))
    else:
        with_nodes = exchange_with_nodes(domain, content, halos, context, world)
        # Before what goes to other devices, as it takes longest.
        result.beside[:0] = with_nodes.beside
        result.after += with_nodes.after
        result.came += [GhostDependency(device, context.copy_stream(device), device) for device in with_nodes.takers]
        result.settled += with_nodes.settled
        result.late = tuple(late_sides(domain.boxes, [*routed.crossing, *with_nodes.pieces]))
    return result


def _fill(domain: Domain, content: Mapping[str, Cells], halos: Sequence[Continued], context: GridContext,
          tags: dict[Buffer, tuple[Any, ...]], result: Exchange) -> None:
    """Append the operations that fill boundary values, except those that are in place."""
    copies: dict[Device, list[Copy]] = defaultdict(list)
    for halo in halos:
        cells = content[halo.field]
        missing = [place for place, buffer in enumerate(cells.buffers)
                   if tags.get(buffer) != (domain.boxes[place], halo.key)]
        if missing:
            fills = _fills(domain, halo)
            for place in missing:
                buffer = cells.buffers[place]
                tags[buffer] = domain.boxes[place], halo.key
                copies[buffer.device] += [_filled(domain, cells, piece, halo, context) for piece in fills[place]]
    for device, several in copies.items():
        result.filled += context.copying(device, several, context.stream(device))


def _fills(domain: Domain, halo: Continued) -> dict[int, list[Filled]]:
    """Return the boundary values of each patch, for all of its ghost cells: exchanges of fewer cells find theirs among
    these.
    """
    fills: dict[int, list[Filled]] = {place: [] for place in range(len(domain.patches))}
    for piece in domain.pieces(domain.ghosts, domain.ghosts, halo.rules):
        if isinstance(piece, Filled):
            fills[piece.target].append(piece)
    return fills


def _filled(domain: Domain, cells: Cells, piece: Filled, halo: Continued, context: GridContext) -> Copy:
    patch, size = domain.patches[piece.target], cells.dtype.itemsize
    target, edge = cells.address(piece.target, patch.layout, piece.to.low), halo.side(piece.axis, piece.side)
    if edge.values < 0:
        return Copy(context.pattern(patch.device, edge.value).address, target, (0, 0, 0), patch.layout.strides,
                    piece.to.shape, size)
    slab = slab_box(domain.lattice.shape, domain.ghosts, piece.axis, piece.side)
    values = context.arguments.buffer(edge.values, patch.device, context.stream(patch.device))
    if values.nbytes != slab.size * size:
        raise PlanError(f"the values for side {piece.side} of axis {piece.axis} of {halo.field!r} have {values.nbytes} "
                        f"bytes; they must have {slab.size * size}, for {slab.shape} cells")
    strides = packed(slab.shape)
    element = sum((at - low) * stride for at, low, stride in zip(piece.start, slab.low, strides, strict=True))
    return Copy(values.address + element * size, target,
                tuple(stride * step for stride, step in zip(strides, piece.steps, strict=True)), patch.layout.strides,
                piece.to.shape, size)


def late_sides(boxes: Sequence[Box], pieces: Sequence[Copied]) -> list[LateEnds]:
    """Return the sides of patches on which ghost cells come late; an edge needs one of its sides only."""
    late = {place: [[False, False] for _ in AXES] for place in range(len(boxes))}
    outside = [(piece.target, [(axis, int(piece.to.low[axis] >= boxes[piece.target].high[axis])) for axis in AXES
                               if not boxes[piece.target].along(axis, *_range(piece.to, axis)).shared(
                                   boxes[piece.target]).size]) for piece in pieces]
    for target, sides in sorted(outside, key=lambda found: len(found[1])):
        if not any(late[target][axis][side] for axis, side in sides):
            axis, side = sides[0]
            late[target][axis][side] = True
    return [tuple((low, high) for low, high in late[place]) for place in range(len(boxes))]


def _range(box: Box, axis: int) -> tuple[int, int]:
    return box.low[axis], box.high[axis]


def _across(domain: Domain, fields: Sequence[Cells], across: Sequence[Across], addresses: np.ndarray,
            context: GridContext,
            result: Exchange) -> None:
    """Append the operations between devices: the giving device writes into the taking one's memory.

    The stream beside starts when the cells to give are there, and nobody reads the ghosts to be overwritten any more;
    what computes next on the giving device must not touch the cells before they were read.
    """
    for routing in across:
        giver, stream = routing.giver, context.copy_stream(routing.giver)
        for device in (giver, *routing.takers):
            result.beside.append(partial(giver.wait, context.stream(device), stream=stream, of=device))
        if routing.direct is not None:
            result.beside += context.routing(giver, routing.direct, addresses, stream)
        for taker, pieces in routing.staged:
            copies = [copy_of(domain, piece, fields[number].dtype.itemsize, fields[number]) for number, piece in pieces]
            result.beside += _staged(giver, taker, copies, context)
        result.came += [GhostDependency(taker, stream, giver) for taker in routing.takers]
        result.settled.append(partial(giver.wait, stream, stream=context.stream(giver), of=giver))


def _staged(giver: Device, taker: Device, copies: Sequence[Copy], context: GridContext) -> list[Operation]:
    """Return copies between devices that cannot reach each other's memory: packed, copied at once, unpacked."""
    nbytes = sum(_aligned(copy.shape, copy.itemsize) for copy in copies)
    packed_here, packed_there = context.held(nbytes, giver), context.held(nbytes, taker)
    pack, unpack, offset = [], [], 0
    for copy in copies:
        strides = packed(copy.shape)
        pack.append(Copy(copy.source, packed_here.address + offset, copy.from_strides, strides, copy.shape,
                         copy.itemsize))
        unpack.append(Copy(packed_there.address + offset, copy.target, strides, copy.to_strides, copy.shape,
                           copy.itemsize))
        offset += _aligned(copy.shape, copy.itemsize)
    here, there = context.copy_stream(giver), context.copy_stream(taker)
    return [*context.copying(giver, pack, here),
            partial(giver.copy_across, packed_there, packed_here, stream=here),
            partial(taker.wait, here, stream=there, of=giver),
            *context.copying(taker, unpack, there),
            partial(giver.wait, there, stream=here, of=taker)]


def _aligned(shape: Triple, itemsize: int) -> int:
    """Return the bytes of a packed box, up to a multiple of 16."""
    return -(-shape[0] * shape[1] * shape[2] * itemsize // 16) * 16
