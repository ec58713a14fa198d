"""Partial results of folds, and their joining on the host.

Each partition is folded on its device; the partial results are joined in the order of the partitions, which depends on
sizes alone, so that a fold gives the same bits each time.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gpu_worker.device.base import Buffer
from gpu_worker.execution.folds.folder import Folder
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.fold_operators import operator_of
from gpu_worker.protocol.messages import Field, FieldFold


@dataclass(frozen=True)
class FoldedArray:
    """Folded field: of one record, or with the keys along its first axis."""

    field: Field
    values: np.ndarray
    magnitude: float
    ordered: bool


@dataclass(frozen=True)
class FoldResult:
    """Result of a fold over all partitions of a worker; ``counts`` has the number of records of each key, if there are
    keys.

    If ``lies`` is not None, its bytes are the reply's data: ``offsets`` are the places of the fields in it, and then of
    the counts.
    """

    count: int
    fields: tuple[FoldedArray, ...]
    counts: np.ndarray | None
    lies: np.ndarray | None = None
    offsets: Sequence[int] = ()


@dataclass
class FieldTotal:
    """Fold of one field of one partition; ``values`` are accumulators, of shape (elements, 1 or 2).

    Those that nothing is joined with are of the field's own dtype and shape, and lie at ``offset`` of what is copied
    out; below 0 they are accumulators, of the type ``carried`` where they may be joined on a device.
    """

    how: FieldFold
    field: Field
    values: np.ndarray
    guards: np.ndarray | None
    offset: int = -1
    carried: str = ""


@dataclass
class PartitionFold:
    """Fold of one partition, on its device until it is copied out and the stream is synchronized.

    Its index is -1 where it is the fold of several.
    """

    index: int
    count: int
    parts: list[FieldTotal]
    folder: Folder
    #: The records of each key, and where they lie in what is copied out.
    counts: np.ndarray | None = None
    counts_at: int = -1
    #: The least and the greatest key, with the partition whose they are, or -1.
    ranges: list[tuple[int, np.ndarray, np.ndarray]] = field(default_factory=list)
    #: How many keys there can be.
    groups: int = 0
    #: Whether the copies to the host have begun.
    is_out: bool = False

    def copy_out(self) -> None:
        """Start copying to the host: after the kernels of all partitions, as a copy may wait for those before it."""
        self.is_out = True
        for target, source in self.folder.results:
            self.folder.device.copy_out(target.reshape(-1).view(np.uint8), source, stream=self.folder.stream)

    def on_device(self, array: np.ndarray) -> Buffer:
        """Return the device memory of an array that :meth:`copy_out` brings to the host."""
        for host, buffer in self.folder.results:
            place = array.ctypes.data - host.ctypes.data
            if 0 <= place <= host.nbytes - array.nbytes:
                return buffer.part(place, array.nbytes)
        raise AssertionError("the array is none of this fold's")

    def close(self) -> None:
        while self.folder.buffers:
            self.folder.buffers.pop().close()


def join(partials: Sequence[PartitionFold]) -> FoldResult | None:
    """Join the partitions' partial results, in order; return None if no partition had a record.

    Raises
    ------
    PlanError
        If the partitions' records differ in shape or dtype, or have keys that are out of range.
    """
    if not partials:
        return None
    for partial in partials:
        check_keys(partial)
    described = [part.field for part in partials[0].parts]
    if any([part.field for part in partial.parts] != described for partial in partials):
        raise PlanError("partitions whose records differ in shape or dtype cannot be folded on the device")
    if all(part.offset >= 0 for part in partials[0].parts):
        return _unjoined(partials[0])
    fields = tuple(_joined(parts) for parts in zip(*[partial.parts for partial in partials], strict=True))
    counts = None if partials[0].counts is None else np.sum([partial.counts[:, 0] for partial in partials
                                                                   if partial.counts is not None], axis=0)
    return FoldResult(sum(partial.count for partial in partials), fields, counts)


def _unjoined(partial: PartitionFold) -> FoldResult:
    """Return a single complete partial result in the memory that it was copied out to, without another copy."""
    (host, _), = partial.folder.results
    fields = tuple([FoldedArray(part.field, part.values, *guarded([part])) for part in partial.parts])
    offsets = [part.offset for part in partial.parts]
    counts = None if partial.counts is None else partial.counts[:, 0]
    return FoldResult(partial.count, fields, counts, host, (*offsets, partial.counts_at))


def needs_no_join(partials: Sequence[PartitionFold]) -> bool:
    """Return whether the memory copied out is the result already: :func:`join` then gives the same for each pass,
    except for guards.
    """
    return len(partials) == 1 and all(part.offset >= 0 for part in partials[0].parts)


def looked_at(partial: PartitionFold) -> list[np.ndarray]:
    """Return the arrays of a partial result that the host reads (keys and guards), if the rest is returned unchanged.
    """
    return [each for _, *extremes in partial.ranges for each in extremes] + \
        [part.guards for part in partial.parts if part.guards is not None]


def check_keys(partial: PartitionFold) -> None:
    """Raise PlanError if a record's key, as it was copied out, is out of range."""
    for index, *extremes in partial.ranges:
        least, greatest = [int(each[0, 0]) for each in extremes]
        wrong = least if least < 0 else greatest
        if not 0 <= wrong < partial.groups:
            whose = f" of partition {index}" if index >= 0 else ""
            raise PlanError(f"a record{whose} has the key {wrong}, and numKeys={partial.groups} promises keys in "
                            f"[0, {partial.groups})")


def _joined(parts: Sequence[FieldTotal]) -> FoldedArray:
    how, described = parts[0].how, parts[0].field
    ufunc = getattr(np, operator_of(how.operator).ufunc)
    with np.errstate(all="ignore"):
        if parts[0].values.shape[1] == 2:
            values = _sum([part.values for part in parts])
        else:
            values = functools.reduce(ufunc, [part.values[:, 0] for part in parts])
        dtype = np.dtype(how.result or described.dtype)
        values = values.view(np.complex128).astype(dtype) if dtype.kind == "c" else values.astype(dtype)
    return FoldedArray(Field(described.name, dtype.str, described.shape), values.reshape(described.shape),
                       *guarded(parts))


def guarded(parts: Sequence[FieldTotal]) -> tuple[float, bool]:
    """Return the largest magnitude that an integer fold may have reached, and whether the data is free of the NaNs that
    the fold guards against.
    """
    how, magnitude = parts[0].how, 0.0
    if how.guard == "overflow":
        guards = parts[0].guards
        if len(parts) > 1:
            join_guards = np.multiply if how.operator == "multiply" else np.add
            with np.errstate(all="ignore"):
                guards = functools.reduce(join_guards, [part.guards for part in parts if part.guards is not None])
        assert guards is not None
        magnitude = float(guards.max(initial=0.0))
    return magnitude, how.guard != "nan" or not any(part.guards is not None and part.guards.any() for part in parts)


def _sum(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sums that Twofolds represent, added as fold.cu adds them."""
    total, lost = parts[0][:, 0], parts[0][:, 1]
    for part in parts[1:]:
        added = total + part[:, 0]
        virtual = added - total
        lost = lost + part[:, 1] + ((total - (added - virtual)) + (part[:, 0] - virtual))
        total = added
    return np.where((lost == 0) | ~np.isfinite(total), total, total + lost)
