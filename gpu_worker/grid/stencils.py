"""Launches a stencil over the patches of a worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gpu_worker.device.base import Device, Source
from gpu_worker.device.base import Late as Given
from gpu_worker.grid.boxes import Box, Triple, shells
from gpu_worker.grid.desk import Desk, Operation
from gpu_worker.grid.exchange import Exchange, Late
from gpu_worker.grid.patches import Cells, Domain, Patch, lifted
from gpu_worker.protocol.errors import LaunchError, PlanError
from gpu_worker.protocol.messages import Argument, Scalar, StencilLaunch, Value
from gpu_worker.protocol.messages import Array as ArrayArgument

#: What a stencil's kernel knows of the cells that it computes; axes z, y, x.
REGION = np.dtype([("pitch", "i8"), ("plane", "i8"), ("low", "i4", 3), ("high", "i4", 3), ("origin", "i8", 3),
                   ("shape", "i8", 3)])

#: The most thread blocks of a launch along y and along z; along x there may be 2**31 - 1.
MOST_BLOCKS = 65_535


@dataclass(frozen=True)
class Part:
    """Cells of a patch that one launch computes: its grid, what the kernel is told of them, and whether they wait for
    late ghost cells.
    """

    place: int
    grid: tuple[int, ...]
    region: Any
    is_late: bool


def launches(launch: StencilLaunch, source: Source, domain: Domain, content: Mapping[str, Cells],
             results: Mapping[str, Cells], exchanged: Exchange, desk: Desk) -> list[Operation]:
    """The operations of an exchange and of a stencil after it.

    Cells that read no late ghost cell are computed while those are on their way.

    Raises
    ------
    LaunchError
        If there is no such field.
    """
    missing = [name for name in launch.inputs if name not in content]
    if missing:
        raise LaunchError(f"the grid has no field {missing[0]!r}; it has {', '.join(map(repr, content))}")
    kernels = {device: device.compile(source, launch.kernel) for device in
               {patch.device for patch in domain.patches}}
    fields = [content[name] for name in launch.inputs] + [results[described.name] for described in launch.outputs]
    given = {device: [_argument(argument, device, desk) for argument in launch.arguments] for device in kernels}
    early: list[Operation] = []
    late: list[Operation] = []
    for part in _parts(launch, domain, exchanged.late):
        patch = domain.patches[part.place]
        origin = patch.layout.origin
        addresses = [np.uint64(cells.buffers[part.place].address + origin * cells.dtype.itemsize) for cells in fields]
        (late if part.is_late else early).append(partial(
            patch.device.launch, kernels[patch.device], part.grid, launch.block,
            [*addresses, part.region, *given[patch.device]], shared=launch.shared, stream=desk.stream(patch.device)))
    return [*exchanged.first, *exchanged.beside, *early, *exchanged.after, *late, *exchanged.settled]


def _parts(launch: StencilLaunch, domain: Domain, late: tuple[Late, ...]) -> tuple[Part, ...]:
    """The launches that a stencil takes on a domain, worked out once."""
    key = "parts", launch.below, launch.above, launch.tile, late
    return domain.once(key, lambda: tuple(_cut(launch, domain, late)))


def _cut(launch: StencilLaunch, domain: Domain, late: tuple[Late, ...]) -> Iterator[Part]:
    below, above = lifted(launch.below, 0), lifted(launch.above, 0)
    for place, (patch, sides) in enumerate(zip(domain.patches, late, strict=True)):
        inner, outer = shells(patch.layout.box, [width * side[0] for width, side in zip(below, sides, strict=True)],
                              [width * side[1] for width, side in zip(above, sides, strict=True)])
        for whole, is_late in ((inner, False), *((box, True) for box in outer)):
            for box in launched(whole, launch.tile):
                yield Part(place, grid_of(box.shape, launch.tile), region(patch, box, domain.lattice.shape), is_late)


def launched(box: Box, tile: Sequence[int]) -> Iterator[Box]:
    """The cells of a box in as few parts as one launch each can compute; none of an empty one.

    Examples
    --------
    >>> [part.shape for part in launched(Box((0, 0, 0), (1, 300_000, 10)), (1024, 4, 8))]
    [(1, 262140, 10), (1, 37860, 10)]
    """
    if not box.size:
        return
    most = [cells * MOST_BLOCKS for cells in reversed(tile[1:])]
    for z in range(box.low[0], box.high[0], most[0]):
        for y in range(box.low[1], box.high[1], most[1]):
            yield Box((z, y, box.low[2]), (min(z + most[0], box.high[0]), min(y + most[1], box.high[1]), box.high[2]))


def grid_of(shape: Triple, tile: Sequence[int]) -> tuple[int, ...]:
    """How many thread blocks a box of cells takes along x, y and z."""
    return tuple(-(-extent // cells) for extent, cells in zip(reversed(shape), tile, strict=True))


def region(patch: Patch, box: Box, shape: Triple) -> Any:
    """What a kernel is told of cells, which are numbered over the grid."""
    within = box.seen_from(patch.layout.box.low)
    return np.array((patch.layout.pitch, patch.layout.plane, within.low, within.high, patch.layout.box.low, shape),
                    REGION)[()]


def _argument(argument: Argument, device: Device, desk: Desk):
    match argument:
        case Scalar():
            return np.frombuffer(argument.value, np.dtype(argument.dtype))[0]
        case Value():
            return Given(argument.slot, desk.arguments.number(argument.slot))
        case ArrayArgument():
            return desk.arguments.buffer(argument.slot, device, desk.stream(device))
    raise PlanError(f"a stencil takes no {type(argument).__name__} argument")
