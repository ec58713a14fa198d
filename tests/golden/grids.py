"""Runs stencils on the host device, over padded patches, and the functions themselves cell by cell."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_worker.device.base import Buffer, Device, Source
from tests.golden.harness import host
from vispark.translate import ElementField, Stencil, StencilKernel, specialise_stencil, trace

REGION = np.dtype([("pitch", "i8"), ("plane", "i8"), ("low", "i4", 3), ("high", "i4", 3), ("origin", "i8", 3),
                   ("shape", "i8", 3)])
#: Elements before the first cell of a row.
LEFT = 32
CellBox = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class PatchPlaces:
    """The places of a patch's cells: interior (z, y, x) with ghosts of a width on each side, as a worker keeps it."""

    shape: tuple[int, int, int]
    ghost: tuple[int, int, int]

    @property
    def pitch(self) -> int:
        """Elements between rows."""
        return -(-(LEFT + self.shape[2] + self.ghost[2]) // 32) * 32

    @property
    def plane(self) -> int:
        """Elements between planes."""
        return self.pitch * (self.shape[1] + 2 * self.ghost[1])

    @property
    def size(self) -> int:
        """Elements in all."""
        return self.plane * (self.shape[0] + 2 * self.ghost[0])

    @property
    def first(self) -> int:
        """The place of cell (0, 0, 0)."""
        return self.ghost[0] * self.plane + self.ghost[1] * self.pitch + LEFT

    def cells(self, flat: np.ndarray) -> np.ndarray:
        """Return the cells, ghosts included, of a patch's memory."""
        rows = self.shape[1] + 2 * self.ghost[1]
        left, right = LEFT - self.ghost[2], LEFT + self.shape[2] + self.ghost[2]
        return flat.reshape(-1, rows, self.pitch)[:, :, left:right]

    def region(self, low: Sequence[int], high: Sequence[int], origin: Sequence[int], shape: Sequence[int]) -> np.void:
        """Return the region that a kernel is told."""
        described = np.zeros((), REGION)
        described["pitch"], described["plane"] = self.pitch, self.plane
        described["low"], described["high"], described["origin"], described["shape"] = low, high, origin, shape
        return described[()]


def padded(values: Sequence[int], fill: int) -> tuple[int, ...]:
    """Return values of a grid's axes as those of (z, y, x)."""
    return (fill,) * (3 - len(values)) + tuple(values)


def patch_of(field: np.ndarray, ghost: Sequence[int]) -> PatchPlaces:
    """Return the patch of an array that has the ghosts around it."""
    width = padded(ghost, 0)
    return PatchPlaces(tuple(n - 2 * g for n, g in zip(padded(field.shape, 1), width, strict=True)), width)


def run(kernel: StencilKernel, values: Sequence[Any], fields: Mapping[str, np.ndarray], ghost: Sequence[int],
        box: CellBox | None = None, origin: Sequence[int] | None = None, shape: Sequence[int] | None = None,
        options: tuple[str, ...] = (), on: Device | None = None) -> list[np.ndarray]:
    """Return the outputs of one launch, as arrays of the interior; cells outside the box are 99. The device is the host
    where none is named.

    Parameters
    ----------
    fields : mapping
        Arrays with ghosts of the given width on every side.
    box : (low, high), optional
        The cells to compute, counted from the interior's first; left out, the interior.
    origin, shape : sequence of int, optional
        Where the interior lies in the whole grid, and how large that is.
    """
    device = on or host()
    stream = device.stream()
    dims = len(ghost)
    patch = patch_of(next(iter(fields.values())), ghost)
    low, high = ((0,) * dims, patch.shape[3 - dims:]) if box is None else box
    low, high = padded(low, 0), padded(high, 1)
    region = patch.region(low, high, padded(origin or (0,) * dims, 0),
                          padded(shape or patch.shape[3 - dims:], 1))
    arguments, buffers, outputs, numbers = [], [], [], iter(values)
    for parameter in kernel.parameters:
        if parameter.kind == "region":
            arguments.append(region)
        elif parameter.kind in ("input", "output"):
            flat = np.full(patch.size, 99, parameter.dtype)
            if parameter.kind == "input":
                patch.cells(flat)[...] = fields[parameter.name].reshape(patch.cells(flat).shape)
            buffer = _sent(flat, device)
            buffers.append(buffer)
            outputs += [(flat, buffer)] if parameter.kind == "output" else []
            arguments.append(np.uint64(buffer.address + patch.first * flat.itemsize))
        elif parameter.pointer:
            buffers.append(_sent(np.ascontiguousarray(next(numbers)).reshape(-1), device))
            arguments.append(buffers[-1])
        else:
            arguments.append(next(numbers))
    compiled = device.compile(Source(kernel.source, f"{kernel.name}.cu", kernel.options + options), kernel.name)
    device.launch(compiled, kernel.grid(low, high), kernel.block, arguments, shared=kernel.shared, stream=stream)
    interiors = []
    for flat, buffer in outputs:
        device.copy_out(flat.view(np.uint8), buffer, stream=stream)
        device.synchronize(stream=stream)
        inner = tuple(slice(g, n - g) for g, n in zip(patch.ghost, patch.cells(flat).shape, strict=True))
        interiors.append(patch.cells(flat)[inner].reshape(patch.shape[3 - dims:]).copy())
    for buffer in buffers:
        buffer.close()
    return interiors


def _sent(flat: np.ndarray, device: Device) -> Buffer:
    stream = device.stream()
    buffer = device.allocate(flat.nbytes, stream=stream)
    device.copy_in(buffer, flat.view(np.uint8), stream=stream)
    device.synchronize(stream=stream)
    return buffer


def translated(fn: Callable[..., Any], fields: Mapping[str, np.ndarray], ghost: Sequence[int], *args: Any,
               **where: Any) -> list[np.ndarray]:
    """Return the outputs of a function's kernel on the interior of fields with ghosts."""
    kernel = kernel_of(fn, fields, len(ghost), *args)
    return run(kernel, kernel.values(trace(fn, args), args), fields, ghost, **where)


def kernel_of(fn: Callable[..., Any], fields: Mapping[str, np.ndarray], dims: int, *args: Any) -> StencilKernel:
    """Return the kernel of a function for fields."""
    described = [ElementField(name, array.dtype.str) for name, array in fields.items()]
    return specialise_stencil(trace(fn, args), described, args, dims=dims)


class Neighbours:
    """A field around one cell, for the plain function."""

    def __init__(self, array: np.ndarray):
        self.array, self.at = array, (0,) * array.ndim

    def __getitem__(self, offset: int | tuple[int, ...]) -> np.generic:
        steps = offset if isinstance(offset, tuple) else (offset,)
        return self.array[tuple(place + step for place, step in zip(self.at, steps, strict=True))]


def plain(fn: Callable[..., Any], fields: Mapping[str, np.ndarray], ghost: Sequence[int], *args: Any) -> list[Any]:
    """Return the results of the function itself for each cell of the interior, in order; fields go by name or, alone,
    first.
    """
    around = {name: Neighbours(array) for name, array in fields.items()}
    shape = tuple(n - 2 * g for n, g in zip(next(iter(fields.values())).shape, ghost, strict=True))
    named = dict(zip([name for name in inspect.signature(fn).parameters if name not in fields], args, strict=False))
    results = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for index in np.ndindex(shape):
            for one in around.values():
                one.at = tuple(i + g for i, g in zip(index, ghost, strict=True))
            cells = {name: one if isinstance(fn, Stencil) else one[(0,) * len(ghost)] for name, one in around.items()}
            results.append(fn(cells[""], *args) if "" in cells else fn(**cells, **named))
    return results
