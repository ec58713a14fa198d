"""Reports of Spark's tasks on their time: seconds by kind of work, which come to the driver through an accumulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark import Accumulator, AccumulatorParam, SparkContext, TaskContext

from vispark.runtime.profiling.profiler import Profile, TaskSeconds

#: Says that what was done since the last time was of a kind.
Lap = Callable[[str], Any]


class _Together(AccumulatorParam):
    """Lists, one behind the other."""

    def zero(self, value: list) -> list:
        return []

    def addInPlace(self, value1: list, value2: list) -> list:
        value1 += value2
        return value1


@dataclass(frozen=True)
class LapRecorder:
    """Recorder of what tasks tell, or of nothing; tasks have it in their closures."""

    heard: Accumulator | None = None

    @classmethod
    def by(cls, sc: SparkContext) -> LapRecorder:
        return cls(sc.accumulator([], _Together()))

    @contextmanager
    def recording(self) -> Iterator[Lap]:
        """Record in a task what is done meanwhile, lap by lap; of no kind is what is not told."""
        spent = TaskSeconds()
        yield spent.lap
        if self.heard is not None:
            task = TaskContext.get()
            by_kind = {kind: seconds for kind, seconds in spent.seconds.items() if kind}
            self.heard.add([(task.stageId(), task.partitionId(), by_kind)])

    def tell(self, profile: Profile) -> None:
        """Let a profile know, in the driver. A task that told several things, one after the other, did all of them."""
        by_task: dict[tuple[int, int], dict[str, float]] = {}
        for stage, partition, seconds in self.heard.value if self.heard else ():
            known = by_task.setdefault((stage, partition), {})
            for kind, spent in seconds.items():
                known[kind] = known.get(kind, 0.0) + spent
        for (stage, partition), seconds in by_task.items():
            profile.add_task_seconds(stage, partition, seconds)


#: Does not listen.
NOT_RECORDED = LapRecorder()
