"""Joining of a fold's partial results into the bytes of a reply."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from gpu_worker.execution.folds import partial_folds
from gpu_worker.execution.folds.partial_folds import PartitionFold
from gpu_worker.execution.replay.recording import PassResult
from gpu_worker.protocol.messages import Folded, FoldedField, Output
from gpu_worker.protocol.payload import Data, aligned


def folded(partials: Sequence[PartitionFold]) -> tuple[Folded, Data | None]:
    """Join partial results that were copied out; return the result's description and its bytes."""
    result = partial_folds.join(partials)
    if result is None:
        return Folded(0, (), -1), None
    offsets, lies = result.offsets, result.lies
    if lies is None:
        arrays = [each.values for each in result.fields]
        arrays += [] if result.counts is None else [result.counts]
        offsets = list(itertools.accumulate([aligned(array.nbytes) for array in arrays], initial=0))
        lies = np.empty(offsets[-1], np.uint8)
        for array, offset in zip(arrays, offsets, strict=False):
            Data(lies).put(offset, array)
    fields = tuple([FoldedField(each.field.name, each.field.dtype, each.field.shape, offset, each.magnitude,
                                each.ordered) for each, offset in zip(result.fields, offsets, strict=False)])
    return Folded(result.count, fields, -1 if result.counts is None else offsets[len(fields)]), Data(lies)


def again(partials: Sequence[PartitionFold]) -> PassResult:
    """Return a function that returns the same result of further passes, each of which copies its partials out.

    Where they are the result as they lie, it is described once, and only their keys and guards are looked at again.
    """
    if not partial_folds.needs_no_join(partials):
        return lambda: ((), *folded(partials))
    described, data = folded(partials)
    parts = [(place, part) for place, part in enumerate(partials[0].parts) if part.guards is not None]

    def answer() -> tuple[tuple[Output, ...], Folded | None, Data | None]:
        partial_folds.check_keys(partials[0])
        if not parts:
            return (), described, data
        fields = list(described.fields)
        for place, part in parts:
            one = fields[place]
            fields[place] = FoldedField(one.field, one.dtype, one.shape, one.offset, *partial_folds.guarded([part]))
        return (), Folded(described.count, tuple(fields), described.counts), data

    return answer
