"""Exchanges: operations that fill ghost cells, from the patches of a device, of other devices and of other nodes.

On one device all boxes of all fields are one launch, on the stream that computes. What goes to other devices is one
launch more for each device that has something to give, which writes straight into the others' memory, on a stream
beside; a device without access to another's memory packs, copies and unpacks instead. What is given for the sides of
the grid is written once into a buffer, which remembers it.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from gpu_worker.device.base import Buffer, Device
from gpu_worker.grid.boxes import AXES, Box, Triple
from gpu_worker.grid.desk import Desk, Operation
from gpu_worker.grid.ghosts import GIVEN, MIRRORED, PERIODIC, Copied, Filled, Rules, slab_box
from gpu_worker.grid.layout import Copy, packed
from gpu_worker.grid.patches import Cells, Domain, lifted
from gpu_worker.grid.remote import travel
from gpu_worker.mpi.world import World
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.grids import Halo, Side

#: Of a patch, whether ghost cells below and above each axis come later than the rest.
Late = tuple[tuple[bool, bool], ...]

NOT_LATE: Late = ((False, False),) * 3


@dataclass(frozen=True)
class Continued:
    """How the ghost cells of a field get their values.

    Attributes
    ----------
    field : str
    below, above : (int, int, int)
        The ghost cells to fill.
    rules : tuple
        How the grid continues at its sides.
    sides : tuple of Side
        Below and above each axis that the grid has.
    key : tuple
        Equal where what is given for the sides is.
    """

    field: str
    below: Triple
    above: Triple
    rules: Rules
    sides: tuple[Side, ...]
    key: tuple

    @classmethod
    def of(cls, halo: Halo, domain: Domain, cells: Cells, desk: Desk) -> Continued:
        """A field's halo, checked.

        Raises
        ------
        PlanError
            If it is wider than the grid's, or a side has a rule that there is not or values of another size.
        """
        below, above = lifted(halo.below, 0), lifted(halo.above, 0)
        if any(width > most for widths in (below, above) for width, most in zip(widths, domain.ghosts, strict=True)):
            raise PlanError(f"{halo.below} ghost cells below and {halo.above} above of {halo.field!r} are more than "
                            f"the grid's halo has, {domain.ghosts}")
        if len(halo.sides) != 2 * len(halo.below):
            raise PlanError(f"{len(halo.below)} axes have two sides each, and {len(halo.sides)} are described")
        missing = 3 - len(halo.below)
        rules = ((GIVEN, GIVEN),) * missing + tuple(
            (low.rule, high.rule) for low, high in zip(halo.sides[::2], halo.sides[1::2], strict=True))
        for low, high in rules:
            if {low, high} - {PERIODIC, MIRRORED, GIVEN} or (low == PERIODIC) != (high == PERIODIC):
                raise PlanError(f"an axis cannot continue as {low} below and {high} above")
        key = rules, tuple(_content(side, cells.dtype, desk) for side in halo.sides)
        return cls(halo.field, below, above, rules, halo.sides, key)

    def side(self, axis: int, side: int) -> Side:
        """What is given for a side of an axis."""
        return self.sides[2 * (axis - 3) + side + len(self.sides)]


def _content(side: Side, dtype: np.dtype, desk: Desk) -> bytes:
    if side.rule != GIVEN:
        return b""
    if side.values >= 0:
        return hashlib.blake2b(desk.arguments.fixed(side.values), digest_size=16).digest()
    if len(side.value) != dtype.itemsize:
        raise PlanError(f"the value outside of a field of {dtype} has {len(side.value)} bytes")
    return side.value


@dataclass(frozen=True)
class Around:
    """The other nodes of a plan, and until when they are waited for."""

    world: World
    deadline: float


@dataclass
class Exchange:
    """One exchange of some fields, as operations.

    Attributes
    ----------
    first : list of Operation
        To be done before anything that reads ghost cells.
    beside : list of Operation
        To be done then, and not to be waited for by what reads no late ghost cell.
    after : list of Operation
        To be done before what reads late ghost cells.
    settled : list of Operation
        To be done before anything is computed anew.
    late : list of Late
        Of each patch.
    """

    first: list[Operation] = field(default_factory=list)
    beside: list[Operation] = field(default_factory=list)
    after: list[Operation] = field(default_factory=list)
    settled: list[Operation] = field(default_factory=list)
    late: list[Late] = field(default_factory=list)


def exchange(domain: Domain, content: Mapping[str, Cells], halos: Sequence[Continued], desk: Desk,
             tags: dict[Buffer, tuple], around: Around | None = None) -> Exchange:
    """Fill the ghost cells of some fields.

    Parameters
    ----------
    domain : Domain
    content : mapping of str to Cells
        The fields of the domain's patches.
    halos : sequence of Continued
        The fields to exchange, and how.
    desk : Desk
    tags : dict
        What was filled of each buffer from the sides, which is brought up to date.
    around : Around, optional
        The other nodes.
    """
    if halos and not domain.is_complete:
        raise PlanError("ghost cells are exchanged among all blocks of a grid, and some are neither here nor with "
                        "another worker that runs the plan")
    made = Exchange(late=[NOT_LATE] * len(domain.patches))
    local: dict[Device, list[Copy]] = defaultdict(list)
    across: dict[tuple[Device, Device], list[Copy]] = defaultdict(list)
    crossing: list[Copied] = []
    for halo in halos:
        cells = content[halo.field]
        for copied in domain.pieces(halo.below, halo.above, halo.rules):
            if isinstance(copied, Copied):
                copy = _copy(domain, cells, copied)
                source, target = (domain.patches[place].device for place in (copied.source, copied.target))
                if source is target:
                    local[source].append(copy)
                else:
                    across[source, target].append(copy)
                    crossing.append(copied)
        for place, fills in _fills(domain, halo).items():
            buffer, tag = cells.buffers[place], (domain.boxes[place], halo.key)
            if tags.get(buffer) != tag:
                tags[buffer] = tag
                local[buffer.device] += [_filled(domain, cells, piece, halo, desk) for piece in fills]
    for device, copies in local.items():
        made.first += desk.copying(device, copies, desk.stream(device))
    if across:
        _across(across, desk, made)
    if around is not None:
        travelling = travel(domain, content, halos, desk, around.world, around.deadline)
        # Before what goes to other devices, as it takes longest.
        made.beside[:0] = travelling.beside
        made.after += travelling.after
        made.settled += travelling.settled
        crossing += travelling.pieces
    made.late = late_sides(domain.boxes, crossing)
    return made


def _fills(domain: Domain, halo: Continued) -> dict[int, list[Filled]]:
    """What the sides give each patch, in all of its ghosts: whoever reads fewer of them finds these as they are."""
    fills: dict[int, list[Filled]] = {place: [] for place in range(len(domain.patches))}
    for piece in domain.pieces(domain.ghosts, domain.ghosts, halo.rules):
        if isinstance(piece, Filled):
            fills[piece.target].append(piece)
    return fills


def _copy(domain: Domain, cells: Cells, piece: Copied) -> Copy:
    source, target = domain.patches[piece.source].layout, domain.patches[piece.target].layout
    strides = tuple(stride * step for stride, step in zip(source.strides, piece.steps, strict=True))
    return Copy(cells.address(piece.source, source, piece.start), cells.address(piece.target, target, piece.to.low),
                strides, target.strides, piece.to.shape, cells.dtype.itemsize)


def _filled(domain: Domain, cells: Cells, piece: Filled, halo: Continued, desk: Desk) -> Copy:
    patch, size = domain.patches[piece.target], cells.dtype.itemsize
    target, given = cells.address(piece.target, patch.layout, piece.to.low), halo.side(piece.axis, piece.side)
    if given.values < 0:
        return Copy(desk.pattern(patch.device, given.value).address, target, (0, 0, 0), patch.layout.strides,
                    piece.to.shape, size)
    slab = slab_box(domain.lattice.shape, domain.ghosts, piece.axis, piece.side)
    values = desk.arguments.buffer(given.values, patch.device, desk.stream(patch.device))
    if values.nbytes != slab.size * size:
        raise PlanError(f"the values for side {piece.side} of axis {piece.axis} of {halo.field!r} have {values.nbytes} "
                        f"bytes; they must have {slab.size * size}, for {slab.shape} cells")
    strides = packed(slab.shape)
    element = sum((at - low) * stride for at, low, stride in zip(piece.start, slab.low, strides, strict=True))
    return Copy(values.address + element * size, target,
                tuple(stride * step for stride, step in zip(strides, piece.steps, strict=True)), patch.layout.strides,
                piece.to.shape, size)


def late_sides(boxes: Sequence[Box], pieces: Sequence[Copied]) -> list[Late]:
    """The sides of patches on which ghost cells come late; an edge needs one of its sides only."""
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


def _across(across: Mapping[tuple[Device, Device], list[Copy]], desk: Desk, made: Exchange) -> None:
    """Operations between devices: the giving device writes into the taking one's memory.

    The stream beside starts when the cells to give are there, and nobody reads the ghosts to be overwritten any more;
    what computes next on the giving device must not touch the cells before they were read.
    """
    givers: dict[Device, list[Device]] = defaultdict(list)
    for giver, taker in across:
        givers[giver].append(taker)
    for giver, takers in givers.items():
        stream = desk.beside(giver)
        for device in (giver, *takers):
            made.beside.append(partial(giver.wait, desk.stream(device), stream=stream, of=device))
        direct = [copy for taker in takers if giver.reaches(taker) for copy in across[giver, taker]]
        made.beside += desk.copying(giver, direct, stream)
        for taker in takers:
            if not giver.reaches(taker):
                made.beside += _staged(giver, taker, across[giver, taker], desk)
        for taker in takers:
            made.after.append(partial(taker.wait, stream, stream=desk.stream(taker), of=giver))
        made.settled.append(partial(giver.wait, stream, stream=desk.stream(giver), of=giver))


def _staged(giver: Device, taker: Device, copies: Sequence[Copy], desk: Desk) -> list[Operation]:
    """Copies between devices that cannot reach each other's memory: packed, copied at once, unpacked."""
    nbytes = sum(_aligned(copy.shape, copy.itemsize) for copy in copies)
    packed_here, packed_there = desk.held(nbytes, giver), desk.held(nbytes, taker)
    pack, unpack, offset = [], [], 0
    for copy in copies:
        strides = packed(copy.shape)
        pack.append(Copy(copy.source, packed_here.address + offset, copy.from_strides, strides, copy.shape,
                         copy.itemsize))
        unpack.append(Copy(packed_there.address + offset, copy.target, strides, copy.to_strides, copy.shape,
                           copy.itemsize))
        offset += _aligned(copy.shape, copy.itemsize)
    here, there = desk.beside(giver), desk.beside(taker)
    return [*desk.copying(giver, pack, here),
            partial(giver.copy_across, packed_there, packed_here, stream=here),
            partial(taker.wait, here, stream=there, of=giver),
            *desk.copying(taker, unpack, there),
            partial(giver.wait, there, stream=here, of=taker)]


def _aligned(shape: Triple, itemsize: int) -> int:
    """The bytes of a packed box, up to a multiple of 16."""
    return -(-shape[0] * shape[1] * shape[2] * itemsize // 16) * 16
