"""Grids for tests: cases of hypothesis, and what their ghosts must hold, by numpy.pad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from hypothesis import strategies as st

from gpu_worker.device.memory.grid.boxes import AXES, Lattice, Triple, covered, whole
from gpu_worker.device.memory.grid.ghosts import GIVEN, MIRRORED, PERIODIC, Copied, Filled, Rules, ghosts, slab_box
from gpu_worker.device.memory.grid.layout import Copy, PatchLayout, tables

__all__ = ["AXES", "CutGrid", "cases", "coordinates", "padded", "run_tables", "triples"]


def triples(low: int, high: int) -> st.SearchStrategy[Triple]:
    return st.tuples(*[st.integers(low, high)] * 3)


@dataclass(frozen=True)
class CutGrid:
    """A grid, its boundary, and a distribution of its blocks over patches.

    ``fixed`` has the value for each axis and side; with ``varied`` the cell's number along the other axes is added.
    """

    lattice: Lattice
    widths: Triple
    rules: Rules
    fixed: tuple[tuple[int, int], ...]
    varied: bool
    owners: tuple[int, ...]

    @cached_property
    def layouts(self) -> list[PatchLayout]:
        """The patches, owner by owner."""
        held: dict[int, list[Triple]] = {}
        for position, owner in zip(whole(self.lattice.splits), self.owners, strict=True):
            held.setdefault(owner, []).append(position)
        return [PatchLayout(self.lattice.cells(box), self.widths)
                for _, positions in sorted(held.items()) for box in covered(positions)]

    def given(self, axis: int, side: int) -> np.ndarray:
        """Return the values of a side, for the ghosts of the whole grid there, edges included."""
        shape = [extent + 2 * width for extent, width in zip(self.lattice.shape, self.widths, strict=True)]
        shape[axis] = self.widths[axis]
        values = np.full(shape, self.fixed[axis][side], "i8")
        if self.varied:
            values += sum((at + 1) * 1000 ** (place + 1) for place, at in enumerate(np.indices(shape)))
        return values

    def fill(self, memories: Sequence[np.ndarray]) -> None:
        """Fill the ghosts of the patches as the pieces say, by tables of copies."""
        slabs = {(axis, side): self.given(axis, side) for axis in AXES for side in (0, 1)}
        copies = []
        boxes = [layout.box for layout in self.layouts]
        for piece in ghosts(boxes, boxes, self.lattice.shape, self.widths, self.widths, self.rules):
            copies.append(_copy(piece, self, memories, slabs))
        run_tables(*tables(copies))


def _copy(piece: Copied | Filled, case: CutGrid, memories: Sequence[np.ndarray], slabs: dict) -> Copy:
    layout, size = case.layouts[piece.target], memories[0].itemsize
    target = memories[piece.target].ctypes.data + layout.element(piece.to.low) * size
    if isinstance(piece, Copied):
        source = case.layouts[piece.source]
        strides = tuple(stride * step for stride, step in zip(source.strides, piece.steps, strict=True))
        return Copy(memories[piece.source].ctypes.data + source.element(piece.start) * size, target, strides,
                    layout.strides, piece.to.shape, size)
    slab = slabs[piece.axis, piece.side]
    strides = tuple(stride // size for stride in slab.strides)
    start = np.subtract(piece.start, slab_box(case.lattice.shape, case.widths, piece.axis, piece.side).low)
    steps = tuple(stride * step for stride, step in zip(strides, piece.steps, strict=True))
    return Copy(slab.ctypes.data + int(start @ strides) * size, target, steps, layout.strides, piece.to.shape, size)


def run_tables(entries: np.ndarray, works: np.ndarray, source: np.ndarray | None = None,
               target: np.ndarray | None = None) -> None:
    """Copy as the kernel does by tables; addresses count from the arrays given, or are the process's own."""
    for work in works:
        entry = entries[work["copy"]]
        unit, nx = int(entry["unit"]), int(entry["nx"])
        for row in range(work["first"], work["first"] + work["rows"]):
            z, y = divmod(int(row), int(entry["ny"]))
            source_row = _memory(source, int(entry["source"]) + z * int(entry["from_z"]) + y * int(entry["from_y"]),
                                 nx, unit, int(entry["from_x"]))
            target_row = _memory(target, int(entry["target"]) + z * int(entry["to_z"]) + y * int(entry["to_y"]),
                                 nx, unit, int(entry["to_x"]))
            assert (entry["target"] + entry["to_y"] * (entry["ny"] > 1)) % unit == 0
            target_row[...] = source_row


def _memory(base: np.ndarray | None, start: int, nx: int, unit: int, step: int) -> np.ndarray:
    address = start + (base.ctypes.data if base is not None else 0)
    low = address + min(0, (nx - 1) * step * unit)
    span = abs((nx - 1) * step) * unit + unit
    raw = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_ubyte * span).from_address(low))
    return np.lib.stride_tricks.as_strided(raw[address - low:], (nx, unit), (step * unit, 1))


def coordinates(shape: Triple) -> np.ndarray:
    """Return a field in which every cell has a number of its own."""
    return np.arange(1, np.prod(shape) + 1, dtype="i8").reshape(shape)


def padded(full: np.ndarray, case: CutGrid) -> np.ndarray:
    """Return a field with the ghosts of the whole grid, padded along one axis after the other."""
    for axis in AXES:
        for side in (0, 1):
            width = [(0, 0)] * 3
            width[axis] = (case.widths[axis], 0) if side == 0 else (0, case.widths[axis])
            rule = case.rules[axis][side]
            if rule == GIVEN:
                full = np.concatenate([_slab(full, case, axis, side), full][::1 if side == 0 else -1], axis)
            elif rule == MIRRORED:
                full = np.pad(full, width, "symmetric")
            else:
                # The side below is there already when the one above is padded, and is no part of the period.
                ghost = case.widths[axis] if side else 0
                low = slice(ghost, ghost + case.widths[axis]) if side else slice(
                    case.lattice.shape[axis] - case.widths[axis], case.lattice.shape[axis])
                cells = full[tuple(low if at == axis else slice(None) for at in AXES)]
                full = np.concatenate([cells, full] if side == 0 else [full, cells], axis)
    return full


def _slab(full: np.ndarray, case: CutGrid, axis: int, side: int) -> np.ndarray:
    """Return the values of a side for those axes that are padded already."""
    values = case.given(axis, side)
    inner = [slice(None) if at <= axis else slice(width, width + extent)
             for at, (width, extent) in enumerate(zip(case.widths, case.lattice.shape, strict=True))]
    return values[tuple(inner)]


@st.composite
def cases(draw: st.DrawFn) -> CutGrid:
    dimensions = draw(st.integers(1, 3))
    shape, splits, widths, rules = [], [], [], []
    for axis in AXES:
        if axis < 3 - dimensions:
            shape.append(1), splits.append(1), widths.append(0), rules.append((GIVEN, GIVEN))
            continue
        width = draw(st.integers(0 if dimensions > 1 else 1, 3))
        parts = draw(st.integers(1, 3))
        shape.append(draw(st.integers(max(1, width) * parts, 14)))
        splits.append(parts)
        widths.append(width)
        sides = st.sampled_from([(PERIODIC, PERIODIC), *[(low, high) for low in (GIVEN, MIRRORED)
                                                         for high in (GIVEN, MIRRORED)]])
        rules.append(draw(sides))
    owners = draw(st.lists(st.integers(0, 3), min_size=int(np.prod(splits)), max_size=int(np.prod(splits))))
    fixed = tuple((-10 - axis, -20 - axis) for axis in AXES)
    return CutGrid(Lattice(tuple(shape), tuple(splits)), tuple(widths), tuple(rules), fixed, draw(st.booleans()),
                   tuple(owners))
