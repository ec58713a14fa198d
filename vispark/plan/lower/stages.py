"""Fusion of recorded operations into workers' steps.

A run of ``vmap`` is one kernel, with the ``vreduce`` and the fold behind it, unless something on the way is kept: then
a step ends there. Transfers are put in where data is not where it is needed: a kernel's input is brought to the device.
A result that is fetched is copied out by the fetch itself, so a ``dtoh`` before it costs nothing; one before a kept
value stays.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

from gpu_worker.protocol.messages import Step
from gpu_worker.protocol.plans import PartitionByKeyStep
from vispark._utils.hashing import hashed_once
from vispark.data.records import RecordLayout
from vispark.plan.fold.lowering import FoldRequest
from vispark.plan.operation import KEYS, DatasetId, LogicalPlan, PlanNode, takes_pairs_of_call


@hashed_once
@dataclass(frozen=True)
class RequestedOutput:
    """Output requested of a chain: its records (up to ``limit``, all if below 0), its fold, or neither.

    With ``keyed`` steps the worker goes on with these, and keeps what they make as a VRDD called ``name``; they may
    read ``others`` VRDDs, whose numbers come before the new one's. With ``table``, the layout of a table's rows, what
    is folded is kept likewise.
    """

    fetch: bool = True
    limit: int = -1
    fold: FoldRequest[Any] | None = None
    keyed: tuple[Step, ...] = ()
    name: str = ""
    others: int = 0
    table: RecordLayout | None = None

    @property
    def exchanges(self) -> bool:
        """Whether workers exchange rows, or what they fold into a table, with each other behind the chain."""
        return self.table is not None or any(isinstance(step, PartitionByKeyStep) for step in self.keyed)


@functools.lru_cache(maxsize=256)
def to_fold(fold: Any) -> RequestedOutput:
    """Return the request to fold all records: one object for each fold, as loops make it in every pass."""
    return RequestedOutput(fold=fold)


#: The most operations that become one step: a kernel of a whole loop, replayed from its lineage, is for no compiler.
LONGEST = 16

#: The records themselves; nothing but what is kept on the way.
FETCH = RequestedOutput()
KEEP = RequestedOutput(fetch=False)


@dataclass(frozen=True)
class FusedStage:
    """Fused nodes from ``first`` up to ``stop``, which run as one step; with ``fold`` the step folds all records after
    them.
    """

    first: int
    stop: int
    fold: bool = False


def after_start(chain: LogicalPlan, start: DatasetId | None) -> LogicalPlan:
    """Return the part of a chain that is to be computed from ``start``: a node's number, or None for the RDD's records.
    """
    if start is None:
        return chain[1:]
    for position, node in enumerate(chain):
        if node.cached is start or (node.cached is not None and node.cached == start):
            return chain[position + 1:]
    raise AssertionError(f"{start} is no part of the chain")


def stages(nodes: Sequence[PlanNode], fold: bool, apart: Set[int] = frozenset()) -> tuple[FusedStage, ...]:
    """Return the steps of a chain behind its start.

    Parameters
    ----------
    nodes : sequence of PlanNode
        What is to be done.
    fold : bool
        Whether the records are folded at the end.
    apart : set of int
        The positions of nodes that are to begin a step of their own; the fold at the end has the one behind them.
    """
    fused = []
    first = 0
    while first < len(nodes):
        stop = first + 1
        folded, is_run = False, nodes[first].op.call is not None
        while is_run and stop < len(nodes) and _joins(nodes, stop, folded) \
                and (takes_pairs_of_call(nodes, stop) or (stop not in apart and stop - first < LONGEST)):
            folded |= nodes[stop].op.row_fold is not None
            stop += 1
        last = fold and is_run and stop == len(nodes) and len(nodes) not in apart and nodes[-1].cached is None
        fused.append(FusedStage(first, stop, last))
        first = stop
    return tuple(fused)


def _joins(nodes: Sequence[PlanNode], position: int, folded: bool) -> bool:
    """Return whether a node can be part of the step of the one before it, whose records are ``folded`` inside or not.
    """
    before = nodes[position - 1]
    # Nothing is left for a kernel behind keys().
    return before.cached is None and before.op.item != KEYS and nodes[position].op.joins(nodes, position, folded)
