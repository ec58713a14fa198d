"""Joining of what the nodes of a world folded: each of them gets the whole result, and none of it goes to the driver.

Each node joins its own partitions first; the results are joined in the order of ranks, piece by piece, so that the
memory that is needed besides does not grow with the table.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpu_worker.exchange.base import JoinedWorld
from gpu_worker.execution.folds.partial_folds import FoldedArray, FoldResult
from gpu_worker.protocol.errors import KeysRefused, WorldLost
from gpu_worker.protocol.fold_operators import operator_of
from gpu_worker.protocol.messages import Field

#: The most bytes that all nodes together say at a time: frames between processes have at most twice as many.
_PIECE_BYTES = 4 << 20


@dataclass(frozen=True)
class _Described:
    """Folded field of a node: what it is, and what says whether the fold is exact."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    operator: str
    magnitude: float
    ordered: bool

    @property
    def kind(self) -> tuple[str, str, tuple[int, ...], str]:
        """What is to be the same on all nodes."""
        return self.name, self.dtype, self.shape, self.operator


@dataclass(frozen=True)
class _Share:
    """Share of one node: how many records it folded into which fields and how many keys, or why it could not."""

    count: int
    groups: int
    fields: tuple[_Described, ...]
    refused: str

    def encode(self) -> bytes:
        return json.dumps([self.count, self.groups, [
            [*each.kind, each.magnitude, each.ordered] for each in self.fields], self.refused]).encode()

    @classmethod
    def decode(cls, data: bytes) -> _Share:
        try:
            count, groups, fields, refused = json.loads(data)
        except ValueError as error:
            raise WorldLost("another node said something else than what it folded") from error
        return cls(count, groups, tuple([_Described(name, dtype, tuple(shape), operator, magnitude, ordered)
                                         for name, dtype, shape, operator, magnitude, ordered in fields]), refused)


def joined_by_all(world: JoinedWorld, result: FoldResult | None, operators: Sequence[str], refused: str
                  ) -> FoldResult | None:
    """Return the fold over the records of all nodes; None where none had a record. All nodes of a world call it.

    Parameters
    ----------
    world : JoinedWorld
        The nodes.
    result : FoldResult or None
        What this one folded, or None where it had no records.
    operators : sequence of str
        By what each field of it is folded.
    refused : str
        Why this node cannot do it; "" if it can.

    Raises
    ------
    KeysRefused
        If a node cannot do its part, or their records differ; all of them raise it.
    WorldLost
        If another node is gone.
    """
    fields = () if result is None else tuple([
        _Described(each.field.name, each.field.dtype, tuple(each.field.shape), by, each.magnitude, each.ordered)
        for each, by in zip(result.fields, operators, strict=True)])
    groups = -1 if result is None or result.counts is None else len(result.counts)
    own = _Share(0 if result is None else result.count, groups, fields, refused)
    shares = [_Share.decode(each) for each in world.gather(own.encode())]
    for share in shares:
        if share.refused:
            raise KeysRefused(share.refused)
    ranks = [rank for rank, share in enumerate(shares) if share.count]
    if not ranks:
        return None
    first = shares[ranks[0]]
    if any([each.kind for each in shares[rank].fields] != [each.kind for each in first.fields] for rank in ranks):
        raise KeysRefused("partitions whose records differ in shape or dtype cannot be folded on the device")
    arrays = []
    for place, described in enumerate(first.fields):
        values = _joined(world, ranks, None if result is None else result.fields[place].values,
                         np.dtype(described.dtype), described.shape, described.operator)
        arrays.append(FoldedArray(Field(described.name, described.dtype, described.shape), values,
                                  *_guarded([shares[rank].fields[place] for rank in ranks])))
    counts = None if first.groups < 0 else _joined(world, ranks, None if result is None else result.counts,
                                                   np.dtype(np.int64), (first.groups,), "add")
    return FoldResult(sum(share.count for share in shares), tuple(arrays), counts)


def _joined(world: JoinedWorld, ranks: Sequence[int], own: np.ndarray | None, dtype: np.dtype,
            shape: tuple[int, ...], operator: str) -> np.ndarray:
    """Return one array of all nodes that have records."""
    ufunc = getattr(np, operator_of(operator).ufunc)
    joined = np.empty(math.prod(shape), dtype)
    flat = None if own is None else np.ascontiguousarray(own, dtype).reshape(-1)
    items = max(_PIECE_BYTES // (world.size * dtype.itemsize), 1)
    for first in range(0, len(joined), items):
        piece = joined[first:first + items]
        gathered = world.gather(b"" if flat is None else flat[first:first + items].tobytes())
        if any(len(gathered[rank]) != piece.nbytes for rank in ranks):
            raise WorldLost("another node said something else than what it folded")
        with np.errstate(all="ignore"):
            piece[:] = functools.reduce(ufunc, [np.frombuffer(gathered[rank], dtype) for rank in ranks])
    return joined.reshape(shape)


def _guarded(parts: Sequence[_Described]) -> tuple[float, bool]:
    """Return the largest magnitude that an integer fold may have reached, and whether no compared number is NaN."""
    magnitudes = [part.magnitude for part in parts]
    if parts[0].operator == "multiply" and len(parts) > 1:
        magnitude = math.prod(max(each, 1.0) for each in magnitudes)
    else:
        magnitude = sum(magnitudes)
    return magnitude, all(part.ordered for part in parts)
