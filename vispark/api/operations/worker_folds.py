"""Folds of a VRDD's records in the workers, which each return one record; the reason is noted where they cannot."""

from __future__ import annotations

import logging
from typing import Any, TypeVar

import numpy as np

from gpu_worker.protocol.messages import FoldByKeyStep, FoldStep
from vispark.api.rdds.fallback import report_fallback
from vispark.api.rdds.recorded_rdd import RecordedRDD
from vispark.errors import PlanError
from vispark.plan.fold.lowering import FoldRequest, Folds
from vispark.plan.lower.stages import to_fold

log = logging.getLogger(__name__)

_Fold = TypeVar("_Fold", FoldStep, FoldByKeyStep)


def folded(vrdd: RecordedRDD, request: FoldRequest[_Fold] | str, action: str) -> tuple[_Fold, Folds] | None:
    """Run a fold in the workers and return its result; None, with the reason recorded, if the workers cannot run
    it.
    """
    fold: Any = request
    if not isinstance(request, str):
        answer = vrdd._evaluate(range(vrdd.getNumPartitions()), to_fold(fold)) if vrdd._is_held() else None
        fold = answer.fold if answer else "nothing is cached"
    if isinstance(fold, str):
        _refuse_blocks(vrdd, action)
        log.info("%s() of VRDD %s is a Spark job: %s", action, vrdd._shown(), fold)
        vrdd._folds[action] = fold
        if action == "reduceByKey" and vrdd._is_held():
            report_fallback(vrdd.ctx, action, f"VRDD {vrdd._shown()}", fold)
        return None
    vrdd._folds[action] = fold
    if not isinstance(request, str):
        vrdd._requests[action] = request
    assert answer is not None
    return fold, [answer.folds[first] for first in sorted(answer.folds)]


def _refuse_blocks(vrdd: RecordedRDD, action: str) -> None:
    """Refuse sums and means of (key, block) pairs, and of arrays whose shapes cannot be added."""
    if action not in ("sum", "mean") or not vrdd._is_held():
        return
    results = [content for content in vrdd._results() if content.count]
    if any(content.layout.grid is not None for content in results):
        raise PlanError(f"{action}() is of records, which are pairs of a block's key and its cells here. Of all "
                        "cells: Grid.sum(blocks), Grid.min, Grid.max, Grid.norm, Grid.dot")
    shapes = {signature.fields[0].shape for content in results for signature in content.signatures
              if signature.fields}
    if len(shapes) > 1 and all(each.layout.kind == "blocks" for each in results):
        raise PlanError(f"{action}() adds the arrays of records over each other, and these have the shapes "
                        f"{_shown(shapes)}. Of all cells of a Grid: Grid.sum(blocks)")
    rows = {shape[1:] for shape in shapes}
    if () not in rows and not _broadcast(rows) and all(each.layout.kind == "elements" and len(each.layout.parts) == 1
                                                       for each in results):
        raise PlanError(f"{action}() adds the arrays of records over each other, and these have the shapes "
                        f"{_shown(rows)}. One number of each: vmap(lambda p: p.sum()).{action}()")


def _broadcast(shapes: set[tuple[int, ...]]) -> bool:
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def _shown(shapes: set[tuple[int, ...]]) -> str:
    return ", ".join(map(str, sorted(shapes)[:8])) + (", ..." if len(shapes) > 8 else "")
