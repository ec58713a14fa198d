"""Launches of stencils over the patches of a worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from gpu_worker.device.base import Device, Late, Source, Stream
from gpu_worker.device.memory.grid.boxes import AXES, Box, Triple, shells
from gpu_worker.device.memory.grid.patches import Cells, Domain, Patch, lifted
from gpu_worker.execution.grid.context import GridContext, Operation
from gpu_worker.execution.grid.exchange import Exchange, LateEnds
from gpu_worker.execution.scheduling.streams import RIMS
from gpu_worker.protocol.errors import LaunchError, PlanError
from gpu_worker.protocol.messages import Argument, ArrayArgument, ScalarArgument, StencilLaunch, ValueArgument

#: What a stencil's kernel knows of the cells that it computes; axes z, y, x.
REGION = np.dtype([("pitch", "i8"), ("plane", "i8"), ("low", "i4", 3), ("high", "i4", 3), ("origin", "i8", 3),
                   ("shape", "i8", 3)])

#: The most thread blocks of a launch along y and along z; along x there may be 2**31 - 1.
MOST_BLOCKS = 65_535

#: From so many parts of a patch on, those at its sides may wait for late ghost cells as a whole: half of all at most.
_SPLIT = 4


@dataclass(frozen=True)
class LaunchPart:
    """Part of a patch that one launch computes: its grid, its region argument, and, if it waits for late ghost cells,
    its number among such launches on the patch, else -1.
    """

    place: int
    grid: tuple[int, ...]
    region: Any
    late: int


def launches(launch: StencilLaunch, source: Source, domain: Domain, content: Mapping[str, Cells],
             results: Mapping[str, Cells], exchanged: Exchange, context: GridContext) -> list[Operation]:
    """Return the operations of an exchange and of a stencil after it.

    Cells that read no late ghost cell are computed while those are on their way; those that do are computed on streams
    beside, so that what is left of a device when the others are nearly done is theirs.

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
    arguments = {device: [_argument(argument, device, context) for argument in launch.arguments] for device in kernels}
    slots = {device: device.side_by_side(kernel, prod(launch.block), launch.shared)
             for device, kernel in kernels.items()}
    early: list[Operation] = []
    late: list[Operation] = []
    rims: dict[tuple[Device, int], Stream] = {}
    for part in _parts(launch, domain, exchanged.late, tuple(slots[patch.device] for patch in domain.patches)):
        patch = domain.patches[part.place]
        device, origin, stream, operations = patch.device, patch.layout.origin, context.stream(patch.device), early
        if part.late >= 0:
            stream, operations = context.rim_stream(device, part.late), late
            rims[device, part.late % len(RIMS)] = stream
        addresses = [np.uint64(cells.buffers[part.place].address + origin * cells.dtype.itemsize) for cells in fields]
        operations.append(partial(device.launch, kernels[device], part.grid, launch.block,
                                  [*addresses, part.region, *arguments[device]], shared=launch.shared, stream=stream))
    return _in_order(exchanged, early, late, rims, context)


def _in_order(exchanged: Exchange, early: Sequence[Operation], late: Sequence[Operation],
              rims: Mapping[tuple[Device, int], Stream], context: GridContext) -> list[Operation]:
    """Return all operations in order. The rim streams, or the device's own stream if it has none, wait for late ghost
    cells behind all earlier work.
    """
    dependencies = []
    for dependency in exchanged.came:
        waiting = [stream for (device, _), stream in rims.items() if device is dependency.device]
        dependencies += [dependency.on(stream) for stream in waiting or [context.stream(dependency.device)]]
    ended = [partial(device.wait, stream, stream=context.stream(device), of=device)
             for (device, _), stream in rims.items()]
    return [*exchanged.first, *exchanged.beside, *early, *exchanged.after, *dependencies, *late, *ended,
            *exchanged.settled]


def _parts(launch: StencilLaunch, domain: Domain, late: tuple[LateEnds, ...],
           slots: tuple[int, ...]) -> tuple[LaunchPart, ...]:
    """Return the launches of a stencil on a domain, computed once."""
    key = "parts", launch.below, launch.above, launch.tile, launch.dealt, late, slots
    return domain.once(key, lambda: tuple(_cut(launch, domain, late, slots)))


def _cut(launch: StencilLaunch, domain: Domain, late: tuple[LateEnds, ...],
         slots: tuple[int, ...]) -> Iterator[LaunchPart]:
    reach = lifted(launch.below, 0), lifted(launch.above, 0)
    dealt, shape = len(AXES) - 1 - launch.dealt, domain.lattice.shape
    for place, (patch, sides) in enumerate(zip(domain.patches, late, strict=True)):
        box, count, extent = patch.layout.box, 1, 0
        widths = [[width * side[end] for width, side in zip(reach[end], sides, strict=True)] for end in (0, 1)]
        if launch.dealt >= 0:
            extent = box.shape[dealt]
            count = parts_of(box.shape, launch, slots[place])
            if count >= _SPLIT and _is_thick(box.shape, launch, count, slots[place], dealt):
                for extents in widths:
                    extents[dealt] = max(extents[dealt], extent // count) if extents[dealt] else 0
        inner, outer = shells(box, *widths)
        for number, whole in enumerate((inner, *outer), start=-1):
            for cells in launched(whole, launch.tile):
                grid = list(grid_of(cells.shape, launch.tile))
                if launch.dealt >= 0:
                    share = round(cells.shape[dealt] * count / extent)
                    grid[launch.dealt] = min(max(grid[launch.dealt], share), MOST_BLOCKS)
                yield LaunchPart(place, tuple(grid), region(patch, cells, shape), number)


def _is_thick(shape: Triple, launch: StencilLaunch, count: int, slots: int, axis: int) -> bool:
    """Return whether the cells that wait for late ghost cells form a part as thick as the others, instead of the
    thinnest one possible.

    Thin ones are computed with as many planes beyond them as a part has, which a part has anyway. But whole parts that
    wait may be the last to be begun: that costs a quarter of a part, as measured.
    """
    beyond = _planes_beyond(launch, axis)
    across = prod(grid_of(shape, launch.tile)) // grid_of(shape, launch.tile)[launch.dealt]
    return 2 * beyond * across * 4 > (shape[axis] / count + beyond) * slots


def _planes_beyond(launch: StencilLaunch, axis: int) -> int:
    """Return the number of planes along an axis that a block reads beyond those that it computes."""
    return lifted(launch.below, 0)[axis] + lifted(launch.above, 0)[axis]


def parts_of(shape: Triple, launch: StencilLaunch, slots: int) -> int:
    """Return the number of parts into which to split the cells of a box along an axis, for ``slots`` concurrent thread
    blocks.

    Blocks come in rounds; the last one of them is rarely full. A block takes as long as the planes that it reads: those
    of its part and those that the kernel reaches beyond it. The fewest parts are those of the kernel's own tile, as
    blocks that go further drift apart, and read anew what others had in the cache.

    Examples
    --------
    >>> from gpu_worker.protocol.messages import StencilLaunch
    >>> three = StencilLaunch(0, "heat", (), (), (), (3,) * 3, (3,) * 3, (32, 12, 1), (117, 30, 128), 0, True, 2)
    >>> parts_of((500, 1000, 1000), three, 132), parts_of((500, 1000, 1000), three, 0)
    (6, 4)
    """
    grid = grid_of(shape, launch.tile)
    axis, least = len(AXES) - 1 - launch.dealt, grid[launch.dealt]
    across, extent = prod(grid) // least, shape[axis]
    beyond = _planes_beyond(launch, axis)

    def cost(count: int) -> int:
        return -(-across * count // slots) * (-(-extent // count) + beyond)

    return min(range(least, min(2 * least, extent) + 1), key=cost) if slots else least


def launched(box: Box, tile: Sequence[int]) -> Iterator[Box]:
    """Yield the cells of a box in as few parts as single launches can compute; none for an empty box.

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
    """Return the number of thread blocks for a box of cells along x, y and z."""
    return tuple(-(-extent // cells) for extent, cells in zip(reversed(shape), tile, strict=True))


def region(patch: Patch, box: Box, shape: Triple) -> Any:
    """Return the kernel argument that describes a box of a patch's cells: strides and extents, in the grid's numbering.
    """
    within = box.seen_from(patch.layout.box.low)
    return np.array((patch.layout.pitch, patch.layout.plane, within.low, within.high, patch.layout.box.low, shape),
                    REGION)[()]


def _argument(argument: Argument, device: Device, context: GridContext) -> Any:
    match argument:
        case ScalarArgument():
            return np.frombuffer(argument.value, np.dtype(argument.dtype))[0]
        case ValueArgument():
            return Late(argument.slot, context.arguments.number(argument.slot))
        case ArrayArgument():
            return context.arguments.buffer(argument.slot, device, context.stream(device))
    raise PlanError(f"a stencil takes no {type(argument).__name__} argument")
