"""Eager execution of cache(): plans are submitted before an action asks for them, up to a bound of plans in flight."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Iterator

from vispark.api.lineage_walk import LineageWalk
from vispark.errors import VisparkError
from vispark.plan import ops
from vispark.plan.ops import PlanNode
from vispark.records.partition_schema import PartitionSchema
from vispark.runtime.driver.session import BATCH, Session
from vispark.runtime.driver.spark_errors import SPARK_JOB_FAILED

log = logging.getLogger(__name__)


class EagerExecution(LineageWalk):
    """Mix-in of a VRDD that submits plans for cached results before an action asks for them.

    Where they hold what it is made of, that is at once. Otherwise results are taken note of, up to as many as may be
    under way; then what they begin with is loaded as an action would, and they follow. So a loop without actions is
    never recorded as a whole, whatever it starts from.
    """

    #: How many results up to here wait for what they are made of; below 0 where that is not tried again.
    _backlog: float = 0

    def _begin(self) -> None:
        """Submit plans for the cached VRDDs that are not computed yet, without waiting."""
        self._begin_here()
        if not self._is_complete():
            before = next((each for each in self._kept() if each is not self), None)
            self._backlog = 1 + (0 if before is None or before._is_complete() else before._backlog)
            if self._backlog >= BATCH:
                self._load_ahead()

    def _begin_here(self) -> None:
        """Submit this VRDD's plan without waiting, if the workers hold the VRDD that it is computed from."""
        self._backlog = 0
        if self._before is None or not self._before._is_held():
            return
        assert self._residency is not None
        chain = (*self._before._recent(), PlanNode(self._op, self._residency.cached))
        if ops.loops(chain):
            return
        session, partitions = Session.of(self.ctx), range(self.getNumPartitions())
        if session.relays:
            session.flush(self._loader, self._chain, partitions, self._waiting())
        else:
            session.submit(self._loader, chain, partitions, self._chain)
        self._let_go_of_inputs()

    def _begin_part(self) -> None:
        """Submit this part of a loop, without waiting, if workers hold the state that it starts from."""
        session = Session.of(self.ctx)
        assert self._before is not None and self._residency is not None
        if self._before._is_held() and not session.relays:
            chain = (*self._before._recent(), PlanNode(self._op, self._residency.cached))
            session.submit(self._loader, chain, range(self.getNumPartitions()), self._chain)

    def _load_ahead(self) -> None:
        """Compute the oldest result that is waiting, by a Spark job if workers hold nothing, and submit the plans of
        later ones.

        Whatever is wrong with it is told by the first action that needs it, and until then it is not tried again.
        """
        waiting: list[EagerExecution] = []
        for each in self._kept():
            if each._is_complete():
                if each._residency is not None and each._residency.has_failed:
                    self._backlog = -math.inf
                    return
                break
            waiting.append(each)
        kept = [each for each in waiting if each._residency is not None]
        if len(kept) < len(waiting) and Session.of(self.ctx).relays:
            self._backlog = -math.inf    # each batch would begin at the RDD again: what it needs was let go of
            return
        try:
            for each in kept[-1:]:
                each._contents()
                each._backlog = 0
            for each in reversed(kept[:-1]):
                each._begin_here()
        except (VisparkError, *SPARK_JOB_FAILED) as error:
            for each in waiting:
                each._backlog = -math.inf
            log.debug("not loaded before it is needed: %s", error)

    def _kept(self) -> Iterator[EagerExecution]:
        """Iterate over the cached or once-queued ancestors of this VRDD, nearest first."""
        each: EagerExecution | None = self
        while each is not None:
            if each._residency is not None or each._backlog:
                yield each
            each = each._before

    def _is_complete(self) -> bool:
        residency = self._residency
        return residency is not None and len(residency.places) == self.getNumPartitions()

    @abstractmethod
    def _is_held(self) -> bool: ...

    @abstractmethod
    def _contents(self) -> dict[int, PartitionSchema]: ...

    @abstractmethod
    def _let_go_of_inputs(self) -> None: ...
