"""Patches of a worker: their blocks, and the device memory of their fields."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, TypeVar

import numpy as np

from gpu_worker.device.base import Buffer, Device
from gpu_worker.device.memory.grid.boxes import Box, Lattice, Triple, covered, device_of_blocks
from gpu_worker.device.memory.grid.ghosts import Copied, Filled, Rules, ghosts
from gpu_worker.device.memory.grid.layout import PatchLayout
from gpu_worker.protocol.codec import decode, encode
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.grids import GridShape

Made = TypeVar("Made")


@dataclass(frozen=True)
class Patch:
    """Blocks of one device that form a box; ``blocks`` are their positions in the lattice."""

    blocks: Box
    layout: PatchLayout
    device: Device


@dataclass(frozen=True)
class Cells:
    """One field of all patches of a worker.

    Attributes
    ----------
    dtype : numpy.dtype
    buffers : tuple of Buffer
        The memory of each patch.
    """

    dtype: np.dtype
    buffers: tuple[Buffer, ...]

    def address(self, place: int, layout: PatchLayout, cell: Triple) -> int:
        """Return the address of a patch's cell, numbered over the grid."""
        return self.buffers[place].address + layout.element(cell) * self.dtype.itemsize

    def share(self) -> Cells:
        for buffer in self.buffers:
            buffer.share()
        return self

    def close(self) -> None:
        for buffer in self.buffers:
            buffer.close()


@dataclass(frozen=True, slots=True)
class RankPatches:
    """Patches, as ranks tell each other: their cells, the number of the device of each, and whether their blocks stay
    in host memory, of which steps take planes.
    """

    lows: tuple[Triple, ...]
    highs: tuple[Triple, ...]
    devices: tuple[int, ...]
    by_planes: bool = False


@dataclass(frozen=True, eq=False)
class Domain:
    """Part of a grid that this worker holds.

    Attributes
    ----------
    lattice : Lattice
    ghosts : (int, int, int)
        The width of the ghost cells on both sides of each axis.
    patches : tuple of Patch
    others : tuple of tuple of Box
        The patches' cells of every rank of the session's MPI world; none without a world.
    other_devices : tuple of tuple of int
        The number of the device that each of these is on, on its node.
    axes : int
        How many axes the grid itself has, which are the last ones.
    is_part : bool
        Whether cells are missing on purpose: ghost cells that would have their values are left as they are.
    by_planes : tuple of bool
        Of every rank, whether it takes planes of its blocks.
    """

    lattice: Lattice
    ghosts: Triple
    patches: tuple[Patch, ...]
    others: tuple[tuple[Box, ...], ...] = ()
    other_devices: tuple[tuple[int, ...], ...] = ()
    axes: int = 3
    is_part: bool = False
    by_planes: tuple[bool, ...] = ()
    _known: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, grid: GridShape, owners: Mapping[int, Device]) -> Domain:
        """Return the domain of a worker that has blocks, given by their numbers, on devices."""
        lattice, ghosts = lattice_of(grid), lifted(grid.ghosts or grid.halo, 0)
        held: dict[Device, list[Triple]] = {}
        for number, device in owners.items():
            held.setdefault(device, []).append(position(lattice, number))
        patches = [Patch(blocks, PatchLayout(lattice.cells(blocks), ghosts), device)
                   for device, positions in sorted(held.items(), key=lambda item: item[0].name)
                   for blocks in covered(positions)]
        return cls(lattice, ghosts, tuple(patches), axes=len(grid.shape))

    @cached_property
    def boxes(self) -> tuple[Box, ...]:
        """The cells of each patch."""
        return tuple(patch.layout.box for patch in self.patches)

    @cached_property
    def device_numbers(self) -> tuple[int, ...]:
        """The number of each patch's device, among the devices that have patches."""
        devices = list(dict.fromkeys(patch.device for patch in self.patches))
        return tuple(devices.index(patch.device) for patch in self.patches)

    @cached_property
    def places(self) -> dict[int, tuple[int, Box]]:
        """The patch and the cells of each block."""
        return {number_of(self.lattice, at): (place, self.lattice.block(at))
                for place, patch in enumerate(self.patches) for at in patch.blocks}

    def pieces(self, below: Triple, above: Triple, rules: Rules) -> tuple[Copied | Filled, ...]:
        """Return the pieces that fill the patches' ghost cells from the patches themselves and from the boundary."""
        return self._ghosts((self.boxes, self.boxes), below, above, rules)

    def sent(self, rank: int, below: Triple, above: Triple, rules: Rules) -> tuple[Copied | Filled, ...]:
        """Return the pieces that another rank's ghost cells take from the patches here."""
        return self._ghosts((self.others[rank], self.boxes), below, above, rules)

    def received(self, rank: int, below: Triple, above: Triple, rules: Rules) -> tuple[Copied | Filled, ...]:
        """Return the pieces that the ghost cells here take from another rank's patches."""
        return self._ghosts((self.boxes, self.others[rank]), below, above, rules)

    @cached_property
    def is_complete(self) -> bool:
        """Whether all cells of the grid that are wanted are here or with the other ranks."""
        if self.is_part:
            return True
        boxes = [box for rank in self.others for box in rank] or self.boxes
        return sum(box.size for box in boxes) == prod(self.lattice.shape)

    def with_ranks(self, descriptions: Sequence[bytes]) -> Domain:
        """Return the domain with the patches of all other ranks, as the ranks' messages describe them."""
        ranks = [decode(each, RankPatches) for each in descriptions]
        others = tuple(tuple(Box(low, high) for low, high in zip(rank.lows, rank.highs, strict=True)) for rank in ranks)
        return replace(self, others=others, other_devices=tuple(rank.devices for rank in ranks),
                       by_planes=tuple(rank.by_planes for rank in ranks), _known={})

    def described(self, *, by_planes: bool = False) -> bytes:
        """Return the message in which a rank describes its patches to others."""
        return encode(RankPatches(tuple(box.low for box in self.boxes), tuple(box.high for box in self.boxes),
                                  self.device_numbers, by_planes), RankPatches)

    def _ghosts(self, sides: tuple[Any, ...], below: Triple, above: Triple,
                rules: Rules) -> tuple[Copied | Filled, ...]:
        targets, sources = sides
        return self.once((sides, below, above, rules), lambda: tuple(
            ghosts(targets, sources, self.lattice.shape, below, above, rules)))

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return a value that depends on the domain and the key alone, computed once for each key."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]


def lifted(numbers: Sequence[int], missing: int) -> Triple:
    """Return numbers of a grid's own axes as those of three; the axes that it lacks come first."""
    return (missing,) * (3 - len(numbers)) + tuple(numbers)


def lattice_of(grid: GridShape) -> Lattice:
    """Return the lattice of a grid.

    Raises
    ------
    PlanError
        If it cannot be: no axes, empty blocks, or ghosts wider than a block or than 32 cells.
    """
    ghosts = grid.ghosts or grid.halo
    if not 1 <= len(grid.shape) <= 3 or not len(grid.shape) == len(grid.splits) == len(grid.halo) == len(ghosts):
        raise PlanError(f"a grid has 1 to 3 axes, with a split and a halo each; this one is {grid}")
    for extent, splits, halo, ghost in zip(grid.shape, grid.splits, grid.halo, ghosts, strict=True):
        if not 1 <= splits <= extent or not 0 <= halo <= ghost <= min(extent // splits, 32):
            raise PlanError(f"an axis of {extent} cells cannot have {splits} blocks with a halo of {halo} in {ghost} "
                            "ghost cells: a block has at least as many cells, and they are 32 at most")
    return Lattice(lifted(grid.shape, 1), lifted(grid.splits, 1))


def position(lattice: Lattice, number: int) -> Triple:
    """Return the position of a block in the lattice."""
    _, height, width = lattice.splits
    return number // (height * width), number // width % height, number % width


def number_of(lattice: Lattice, at: Triple) -> int:
    """Return a block's number, in C order."""
    return (at[0] * lattice.splits[1] + at[1]) * lattice.splits[2] + at[2]


def device_for(grid: GridShape, numbers: Iterable[int], devices: Sequence[Device]) -> Device:
    """Return the device for a partition with these blocks: the owner of most of them in the division into boxes."""
    lattice = lattice_of(grid)
    owners = device_of_blocks(lattice, len(devices))
    placed = [owners[position(lattice, number)] for number in numbers]
    return devices[max(set(placed), key=lambda device: (placed.count(device), -device), default=0)]
