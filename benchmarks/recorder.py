"""What Spark's tasks tell of their time: seconds by kind of work, which come to the driver through an accumulator."""

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
    """Takes down what tasks tell, or nothing; tasks have it in their closures."""

    heard: Accumulator | None = None

    @classmethod
    def by(cls, sc: SparkContext) -> LapRecorder:
        return cls(sc.accumulator([], _Together()))

    @contextmanager
    def recording(self) -> Iterator[Lap]:
        """In a task: what is done meanwhile, lap by lap; of no kind is what is not told."""
        spent = TaskSeconds()
        yield spent.lap
        if self.heard is not None:
            task = TaskContext.get()
            by_kind = {kind: seconds for kind, seconds in spent.seconds.items() if kind}
            self.heard.add([(task.stageId(), task.partitionId(), by_kind)])

    def tell(self, profile: Profile) -> None:
        """In the driver: let a profile know. A task that told several things, one after the other, did all of them."""
        found: dict[tuple[int, int], dict[str, float]] = {}
        for stage, partition, seconds in self.heard.value if self.heard else ():
            known = found.setdefault((stage, partition), {})
            for kind, each in seconds.items():
                known[kind] = known.get(kind, 0.0) + each
        for (stage, partition), seconds in found.items():
            profile.add_task_seconds(stage, partition, seconds)


#: Does not listen.
NOT_RECORDED = LapRecorder()
