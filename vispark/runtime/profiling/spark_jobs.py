"""Spark's own accounts of its jobs: when their tasks ran, and how the tasks spent their time.

Spark's status store has that whether its web interface runs or not. It is read through the gateway as the JSON that
Spark's REST API would give, a call for all jobs and two for each stage.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

__all__ = ["Job", "SparkStage", "Task", "jobs_since", "jobs_so_far", "parts_of_task"]

log = logging.getLogger(__name__)

#: What Python workers told of their tasks: seconds by kind of work, by stage and partition.
SecondsByTask = Mapping[tuple[int, int], Mapping[str, float]]

#: The tasks of a stage that are read one by one; of more the stage is taken as one task.
_MOST_TASKS = 5000

#: Until Spark has noted what came of a job that has ended, in milliseconds.
_NOTED = 10_000


@dataclass(frozen=True)
class Task:
    """An attempt at a task, or, where there were very many, all of a stage: seconds since 1970, and by kind of work."""

    name: str
    start: float
    end: float
    parts: Mapping[str, float]


@dataclass(frozen=True)
class SparkStage:
    """A stage that ran, from its first task to its end."""

    number: int
    name: str
    start: float
    end: float
    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class Job:
    """Spark job, from its submission to its end; ``known`` says whether Spark remembers all of it."""

    number: int
    name: str
    start: float
    end: float
    stages: tuple[SparkStage, ...]
    known: bool = True


def parts_of_task(task: Mapping[str, Any], task_seconds: Mapping[str, float] | None = None) -> dict[str, float]:
    """Return a task's seconds by kind of work; they add up to its duration.

    What its Python worker ``task_seconds`` goes first. Of the rest of its run it is known how long it waited for a
    shuffle's blocks and wrote such, how long the JVM collected garbage, and how long its thread computed; then it
    waited for a Python worker or for a file.

    Examples
    --------
    >>> task = {"schedulerDelay": 5, "duration": 105, "taskMetrics": {
    ...     "executorRunTime": 100, "executorCpuTime": 20_000_000, "jvmGcTime": 10}}
    >>> parts_of_task(task)
    {'scheduling': 0.005, 'gc': 0.01, 'jvm': 0.02, 'python': 0.07}
    >>> parts_of_task(task, {"kernel": 0.09})
    {'scheduling': 0.005, 'kernel': 0.09, 'gc': 0.01}
    """
    metrics = task.get("taskMetrics") or {}
    delay, seconds = (task.get(name) or 0 for name in ("schedulerDelay", "duration"))
    if not metrics:
        return {"python": seconds / 1e3} if seconds else {}
    parts = {"scheduling": delay / 1e3,
             "serialisation": (_of(metrics, "executorDeserializeTime") + _of(metrics, "resultSerializationTime")) / 1e3,
             "transport": (task.get("gettingResultTime") or 0) / 1e3}
    return {kind: each for kind, each in _and(parts, _of_run(metrics, task_seconds or {})).items() if each > 1e-9}


def _of_run(metrics: Mapping[str, Any], task_seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of a task's run in its executor, by kind of work."""
    remaining = _of(metrics, "executorRunTime") / 1e3
    in_all = sum(task_seconds.values())
    parts = {kind: each * min(1.0, remaining / in_all) for kind, each in task_seconds.items() if in_all}
    remaining -= min(remaining, in_all)
    shuffled = _of(metrics, "shuffleReadMetrics", "fetchWaitTime") / 1e3 + \
        _of(metrics, "shuffleWriteMetrics", "writeTime") / 1e9
    for kind, seconds in (("shuffle", shuffled), ("gc", _of(metrics, "jvmGcTime") / 1e3),
                          ("jvm", _of(metrics, "executorCpuTime") / 1e9), ("python", remaining)):
        parts[kind] = parts.get(kind, 0.0) + min(remaining, seconds)
        remaining -= min(remaining, seconds)
    return parts


def _of(metrics: Mapping[str, Any], *names: str) -> float:
    value: Any = metrics
    for name in names:
        value = (value or {}).get(name)
    return value or 0


def _and(some: Mapping[str, float], others: Mapping[str, float]) -> dict[str, float]:
    return {kind: some.get(kind, 0.0) + others.get(kind, 0.0) for kind in {**some, **others}}


# -- Spark's status store ---------------------------------------------------------------------------------------------

def jobs_so_far(context: SparkContext) -> int:
    """Return the number of jobs of a context so far, which is the number of the next one."""
    return context._jsc.sc().dagScheduler().numTotalJobs() if context._jsc else 0


def jobs_since(context: SparkContext, first: int, task_seconds: SecondsByTask) -> tuple[list[Job], int]:
    """Return the jobs from a number on, and how many of them Spark does not remember.

    What can not be had from Spark, as its JVM has ended, counts as not remembered.
    """
    try:
        last = jobs_so_far(context)
        jobs = list(_jobs(context, first, task_seconds)) if last > first else []
    except Py4JError as error:
        log.warning("what Spark's jobs spent their time on is not known: %s", error)
        return [], 1
    return [job for job in jobs if job.known], last - first - sum(job.known for job in jobs)


def _jobs(context: SparkContext, first: int, task_seconds: SecondsByTask) -> Iterator[Job]:
    spark, jvm = context._jsc.sc(), context._jvm
    try:
        spark.listenerBus().waitUntilEmpty(_NOTED)
    except Py4JJavaError as error:
        log.warning("Spark has not noted yet what came of all jobs: %s", error.java_exception)
    assert jvm is not None
    mapper = jvm.com.fasterxml.jackson.databind.ObjectMapper().registerModule(
        jvm.com.fasterxml.jackson.module.scala.DefaultScalaModule())
    store = spark.statusStore()

    def read(value: Any) -> Any:
        return json.loads(mapper.writeValueAsString(value))

    stages: dict[int, SparkStage | None] = {}
    for job in sorted(read(store.jobsList(None)), key=lambda job: job["jobId"]):
        if job["jobId"] >= first and job["submissionTime"]:
            # A stage that an earlier job of these ran is known from there, and does not count twice.
            new = sorted([number for number in job["stageIds"] if number not in stages])
            stages |= {number: _stage(store, read, number, task_seconds) for number in new}
            here = [stages[number] for number in new]
            yield Job(job["jobId"], job["name"], job["submissionTime"] / 1e3, _end(job["completionTime"]),
                      tuple([stage for stage in here if stage and stage.tasks]), None not in here)


def _stage(store: Any, read: Any, number: int, task_seconds: SecondsByTask) -> SparkStage | None:
    """Return a stage as it was last attempted; None where Spark has forgotten it."""
    try:
        stage = read(store.lastStageAttempt(number))
    except Py4JJavaError:
        return None
    start, end = (stage["firstTaskLaunchedTime"] or stage["submissionTime"] or 0) / 1e3, _end(stage["completionTime"])
    tasks: Sequence[Task] = ()
    if 0 < stage["numTasks"] <= _MOST_TASKS:
        tasks = [_task(number, task, task_seconds)
                 for task in read(store.taskList(number, stage["attemptId"], _MOST_TASKS)) if task["launchTime"]]
    elif stage["numCompleteTasks"]:
        tasks = [_stage_task(stage, start, end, task_seconds)]
    return SparkStage(number, stage["name"], start, end, tuple(tasks))


def _task(stage: int, task: Mapping[str, Any], task_seconds: SecondsByTask) -> Task:
    partition, start = task["partitionId"], task["launchTime"] / 1e3
    seconds = task_seconds.get((stage, partition)) if task["status"] == "SUCCESS" else None
    return Task(f"task {task['index']} of stage {stage}", start, start + (task["duration"] or 0) / 1e3,
                parts_of_task(task, seconds))


def _stage_task(stage: Mapping[str, Any], start: float, end: float, task_seconds: SecondsByTask) -> Task:
    """Return one task that stands for all tasks of a stage, with Spark's sums of their metrics."""
    metrics = {**stage, "shuffleReadMetrics": {"fetchWaitTime": stage.get("shuffleFetchWaitTime")},
               "shuffleWriteMetrics": {"writeTime": stage.get("shuffleWriteTime")}}
    seconds: dict[str, float] = {}
    for (number, _), parts in task_seconds.items():
        seconds = _and(seconds, parts) if number == stage["stageId"] else seconds
    return Task(f"{stage['numTasks']} tasks of stage {stage['stageId']}", start, end,
                parts_of_task({"taskMetrics": metrics}, seconds))


def _end(milliseconds: int | None) -> float:
    """Return a time in seconds; infinity if it is None, as for what has not ended yet."""
    return float("inf") if milliseconds is None else milliseconds / 1e3
