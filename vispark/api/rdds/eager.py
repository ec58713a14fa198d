"""Eager execution of cache(): plans are submitted before an action asks for them, up to a bound of plans in flight.

A plan is submitted at once where workers hold its input. Otherwise the results that wait are counted, up to the bound;
then the input of the oldest is loaded as an action would load it, and their plans follow. So a loop without actions is
never recorded as a whole, whatever it starts from.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator

from vispark.api.rdds.recorded_rdd import RecordedRDD
from vispark.errors import VisparkError
from vispark.plan import ops
from vispark.plan.ops import PlanNode
from vispark.runtime.driver.session import BATCH, Session
from vispark.runtime.driver.spark_errors import SPARK_JOB_FAILED

log = logging.getLogger(__name__)


def begin(vrdd: RecordedRDD) -> None:
    """Submit plans for the cached VRDDs that are not computed yet, without waiting."""
    _begin_here(vrdd)
    if not vrdd._is_complete():
        before = next((each for each in to_be_kept(vrdd) if each is not vrdd), None)
        vrdd._backlog = 1 + (0 if before is None or before._is_complete() else before._backlog)
        if vrdd._backlog >= BATCH:
            _load_ahead(vrdd)


def _begin_here(vrdd: RecordedRDD) -> None:
    """Submit this VRDD's plan without waiting, if the workers hold the VRDD that it is computed from."""
    vrdd._backlog = 0
    if vrdd._before is None or not vrdd._before._is_held():
        return
    assert vrdd._residency is not None
    chain = (*vrdd._before._recent(), PlanNode(vrdd._op, vrdd._residency.cached))
    if ops.loops(chain):
        return
    session, partitions = Session.of(vrdd.ctx), range(vrdd.getNumPartitions())
    if session.relays:
        session.flush(vrdd._loader, vrdd._chain, partitions, vrdd._waiting())
    else:
        session.submit(vrdd._loader, chain, partitions, vrdd._chain)
    vrdd._let_go_of_inputs()


def begin_part(vrdd: RecordedRDD) -> None:
    """Submit this part of a loop, without waiting, if workers hold the state that it starts from."""
    session = Session.of(vrdd.ctx)
    assert vrdd._before is not None and vrdd._residency is not None
    if vrdd._before._is_held() and not session.relays:
        chain = (*vrdd._before._recent(), PlanNode(vrdd._op, vrdd._residency.cached))
        session.submit(vrdd._loader, chain, range(vrdd.getNumPartitions()), vrdd._chain)


def _load_ahead(vrdd: RecordedRDD) -> None:
    """Compute the oldest result that is waiting, by a Spark job if workers hold nothing, and submit the plans of
    later ones.

    Whatever is wrong with it is told by the first action that needs it, and until then it is not tried again.
    """
    waiting: list[RecordedRDD] = []
    for result in to_be_kept(vrdd):
        if result._is_complete():
            if result._residency is not None and result._residency.has_failed:
                vrdd._backlog = -math.inf
                return
            break
        waiting.append(result)
    resident = [each for each in waiting if each._residency is not None]
    if len(resident) < len(waiting) and Session.of(vrdd.ctx).relays:
        vrdd._backlog = -math.inf    # each batch would begin at the RDD again: what it needs was let go of
        return
    try:
        for result in resident[-1:]:
            result._contents()
            result._backlog = 0
        for result in reversed(resident[:-1]):
            _begin_here(result)
    except (VisparkError, *SPARK_JOB_FAILED) as error:
        for result in waiting:
            result._backlog = -math.inf
        log.debug("not loaded before it is needed: %s", error)


def to_be_kept(vrdd: RecordedRDD) -> Iterator[RecordedRDD]:
    """Iterate over the cached or once-queued ancestors of this VRDD, nearest first."""
    ancestor: RecordedRDD | None = vrdd
    while ancestor is not None:
        if ancestor._residency is not None or ancestor._backlog:
            yield ancestor
        ancestor = ancestor._before
