"""Folds of the accumulators that the works of a fused kernel leave, joined on their device."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpu_worker.device.base import Buffer
from gpu_worker.execution.folds.element_folds import ACCUMULATORS, SOURCE, ElementFold, accumulator_size, element_of
from gpu_worker.execution.folds.folder import THREADS, Folder, threads_across
from gpu_worker.execution.folds.partial_folds import FieldTotal, PartitionFold
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.fold_operators import is_known, operator_of
from gpu_worker.protocol.messages import Accumulators, FieldFold, Launch, MapFoldStep
from gpu_worker.protocol.payload import aligned

#: Accumulators from which neighbours are read 32 at a time, and the most blocks side by side.
_WIDE = 4096
_MAX_GRID = 65535


@dataclass(frozen=True)
class PartialAccumulators:
    """Joined accumulators of one array that thread blocks left: elements of a result, or accumulators still to join."""

    values: np.ndarray
    offset: int
    is_result: bool


def fold_of_works(step: MapFoldStep, launch: Launch, left: Sequence[PartialAccumulators], folder: Folder, index: int,
                  count: int) -> PartitionFold:
    """Return the partial result of a launch's ``partials``, joined; valid once they are copied out."""
    fold = PartitionFold(index, count, [], folder)
    named = {(each.field, each.guard): (each, one) for each, one in zip(launch.partials, left, strict=True)}
    for described in launch.outputs:
        accumulators, one = named[described.name, ""]
        guard = next((guard for name, guard in named if name == described.name and guard), "")
        how = FieldFold(described.name, accumulators.operator, guard)
        values = one.values.reshape(described.shape) if one.is_result else one.values
        fold.parts.append(FieldTotal(how, described, values, named[described.name, guard][1].values if guard else None,
                                     one.offset if one.is_result else -1, accumulators.accumulator))
    if step.how == "key":
        counts = named[step.key, ""][1]
        fold.counts, fold.counts_at = counts.values, counts.offset
        fold.ranges = [(index, named[step.key, "least"][1].values, named[step.key, "greatest"][1].values)]
        fold.groups = step.groups
    return fold


def results_of(launch: Launch) -> list[str]:
    """Return the dtype of the output field that each of a launch's ``partials`` holds; "" for partials of no field."""
    dtypes = {described.name: described.dtype for described in launch.outputs}
    return ["" if each.guard else dtypes.get(each.field, "") for each in launch.partials]


def accumulators(folder: Folder, partial: Accumulators, works: int) -> Buffer:
    """Return memory for the accumulators of works."""
    if partial.accumulator not in ACCUMULATORS or not is_known(partial.operator):
        raise PlanError(f"no fold {partial.operator!r} in {partial.accumulator!r} on the device")
    return folder.allocate(works * partial.width, partial.accumulator)


def result(folder: Folder, partials: Sequence[Accumulators],
           dtypes: Sequence[str]) -> tuple[list[int], list[PartialAccumulators]]:
    """Reserve memory as :meth:`piece` does; return device addresses and host parts."""
    buffer, accumulators = piece(folder, partials, dtypes)
    return [buffer.address + one.offset for one in accumulators], accumulators


def piece(folder: Folder, partials: Sequence[Accumulators],
          dtypes: Sequence[str]) -> tuple[Buffer, list[PartialAccumulators]]:
    """Reserve one piece of device and host memory for joined accumulators; return it, and their places.

    Those with a dtype become elements of it.
    """
    sizes = [_element_bytes(dtype) * partial.width if dtype else partial.width * accumulator_size(partial.accumulator)
             for partial, dtype in zip(partials, dtypes, strict=True)]
    offsets = list(itertools.accumulate(map(aligned, sizes), initial=0))
    buffer, host = folder.take(offsets[-1]), folder.scratch.host(offsets[-1], folder.device)
    folder.results.append((host, buffer))
    accumulators = []
    for partial, of, start, nbytes in zip(partials, dtypes, offsets, sizes, strict=False):
        dtype, width = ACCUMULATORS[partial.accumulator]
        values = host[start:start + nbytes]
        accumulators.append(PartialAccumulators(values.view(of), start, True) if of else
                            PartialAccumulators(values.view(dtype).reshape(partial.width, width), start, False))
    return buffer, accumulators


def join(folder: Folder, partial: Accumulators, left: Buffer, table: tuple[int, int], segments: int,
         dtype: str = "") -> None:
    """Join the accumulators of works, of one array.

    Parameters
    ----------
    partial : Accumulators
        What they are.
    left : Buffer
        Where they are.
    table : tuple of int
        The addresses of where each segment's works begin, and of where the result of each is to be.
    segments : int
        How many of them there are.
    dtype : str
        The dtype of the results; left out, they are accumulators.
    """
    across = min(32 if partial.width >= _WIDE else 8, threads_across(partial.width))
    element = element_of(dtype) if dtype else partial.accumulator
    functor = operator_of(partial.operator).functor
    kernel = folder.device.compile(SOURCE, f"join_works<{functor}, {partial.accumulator}, {element}, {across}>")
    grid = segments, max(1, min(_MAX_GRID, -(-partial.width // across)))
    folder.device.launch(kernel, grid, (across, THREADS // across), [
        left, np.uint64(table[0]), np.uint64(table[1]), np.int64(partial.width)], stream=folder.stream)


def accumulator_bytes(partial: Accumulators) -> int:
    """Return the bytes of the accumulators that a work leaves; 0 of those that are not known."""
    dtype, width = ACCUMULATORS.get(partial.accumulator, ("u1", 0))
    return partial.width * np.dtype(dtype).itemsize * width


def joining(partial: Accumulators) -> ElementFold:
    """Return the fold that joins accumulators."""
    return ElementFold(operator_of(partial.operator).functor, "Value", partial.accumulator, partial.accumulator)


def _element_bytes(dtype: str) -> int:
    """Return the bytes of an accumulator's element; of a complex number those of a part."""
    parsed = np.dtype(dtype)
    return parsed.itemsize // 2 if parsed.kind == "c" else parsed.itemsize
