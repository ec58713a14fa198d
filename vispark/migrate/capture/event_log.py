"""Application as an event log tells it: jobs and stages with sums over their tasks; nothing of it grows with tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from vispark.migrate.capture.event_log_files import LogLines
from vispark.migrate.errors import EventLogError
from vispark.runtime.profiling.spark_jobs import parts_of_task

#: Names in a log, and those that Spark's REST API has for the same; ``parts_of_task`` reads the latter.
_METRICS = {"Executor Deserialize Time": "executorDeserializeTime", "Executor Run Time": "executorRunTime",
            "Executor CPU Time": "executorCpuTime", "JVM GC Time": "jvmGcTime",
            "Result Serialization Time": "resultSerializationTime"}

#: How far into a line the name of its event stands.
_HEAD = 80


@dataclass
class LoggedStage:
    """Stage as it ran, with sums over those of its tasks that succeeded.

    Attributes
    ----------
    parts : dict
        Seconds by kind of work, over all tasks.
    retried : int
        Attempts that failed, were killed, or came second.
    """

    number: int
    name: str = ""
    tasks: int = 0
    retried: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    start: float = 0.0
    end: float = 0.0
    shuffled: int = 0
    parts: dict[str, float] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)


@dataclass
class LoggedJob:
    """Job of a log; ``end`` is 0 where the log ends before it does."""

    number: int
    site: str
    start: float
    stages: tuple[int, ...]
    end: float = 0.0
    failed: bool = False


@dataclass
class Application:
    """Application of a log; times are seconds since 1970, 0 where the log does not say.

    Attributes
    ----------
    problems : list of str
        What of the log could not be read or is not there.
    """

    name: str = ""
    number: str = ""
    version: str = ""
    start: float = 0.0
    end: float = 0.0
    jobs: dict[int, LoggedJob] = field(default_factory=dict)
    stages: dict[int, LoggedStage] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    is_complete: bool = False

    @property
    def seconds(self) -> float | None:
        """From the start to the end, or to the last event; None where no start is known."""
        last = self.end or max([job.end or job.start for job in self.jobs.values()], default=0.0)
        return last - self.start if self.start and last >= self.start else None

    def ran(self, job: LoggedJob) -> list[LoggedStage]:
        """Return the stages of a job that ran tasks between its start and its end."""
        return [stage for number in job.stages if (stage := self.stages.get(number)) is not None and stage.tasks
                and stage.start >= job.start - 1e-3 and (not job.end or stage.start <= job.end)]


def read_log(path: str) -> Application:
    """Return the application of an event log.

    Parameters
    ----------
    path : str
        A file or a folder of rolled files, of Spark 3.5 or 4, plain, zstd or gz; or its URL.

    Raises
    ------
    EventLogError
        If it is none, or in a form that cannot be read. One that is cut is read as far as it goes, and ``problems`` of
        the result say so.
    """
    lines = LogLines(path)
    application = application_of(lines, path)
    application.problems[:0] = lines.problems
    return application


def application_of(lines: Iterable[bytes], path: str = "the log") -> Application:
    """Return the application of a log's lines.

    Raises
    ------
    EventLogError
        If no line is an event of Spark's.

    Examples
    --------
    >>> application_of([b'{"Event":"SparkListenerApplicationStart","App Name":"a","Timestamp":1000}', b'{"Ev']).problems
    ['1 line could not be read', 'the log ends before the application does: it still runs, failed, or was cut']
    """
    application, events, bad = Application(), 0, 0
    for line in lines:
        if not line.strip():
            continue
        head = line[:_HEAD]
        handler = next((each for name, each in _HANDLERS.items() if name in head), None)
        if handler is None:
            events += b'"Event"' in head
            bad += b'"Event"' not in head
            continue
        try:
            handler(application, json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            bad += 1
        else:
            events += 1
    if not events:
        raise EventLogError(f"{path} is no event log of Spark's: no line of it is an event")
    if bad:
        application.problems.append(f"{bad} {'line' if bad == 1 else 'lines'} could not be read")
    if not application.is_complete:
        application.problems.append("the log ends before the application does: it still runs, failed, or was cut")
    failed = sum(job.failed for job in application.jobs.values())
    retried = sum(stage.retried for stage in application.stages.values())
    if failed:
        application.problems.append(f"{failed} of {len(application.jobs)} jobs failed; they count in no pass")
    if retried:
        application.problems.append(
            f"{retried} attempts at tasks failed, were killed or came second; they count in no sum")
    return application


# -- events -----------------------------------------------------------------------------------------------------------

def _log_start(application: Application, event: dict[str, Any]) -> None:
    application.version = str(event["Spark Version"])


def _application_start(application: Application, event: dict[str, Any]) -> None:
    application.name, application.number = str(event.get("App Name", "")), str(event.get("App ID", ""))
    application.start = event["Timestamp"] / 1e3


def _application_end(application: Application, event: dict[str, Any]) -> None:
    application.end, application.is_complete = event["Timestamp"] / 1e3, True


def _job_start(application: Application, event: dict[str, Any]) -> None:
    properties = event.get("Properties") or {}
    infos = event.get("Stage Infos") or []
    # The stage that gives the result is the last of those that the job may need.
    last: dict[str, Any] = max(infos, key=lambda info: info["Stage ID"], default={})
    site = properties.get("callSite.short") or last.get("Stage Name", "")
    application.jobs[event["Job ID"]] = LoggedJob(event["Job ID"], str(site), event["Submission Time"] / 1e3,
                                                  tuple(sorted(event["Stage IDs"])))
    for info in infos:
        _stage_of(application, info["Stage ID"]).name = str(info["Stage Name"])


def _job_end(application: Application, event: dict[str, Any]) -> None:
    job = application.jobs[event["Job ID"]]
    job.end = event["Completion Time"] / 1e3
    job.failed = event["Job Result"]["Result"] != "JobSucceeded"


def _stage_submitted(application: Application, event: dict[str, Any]) -> None:
    info = event["Stage Info"]
    stage = _stage_of(application, info["Stage ID"])
    stage.name = str(info["Stage Name"])
    if info.get("Submission Time"):
        stage.start = info["Submission Time"] / 1e3


def _stage_completed(application: Application, event: dict[str, Any]) -> None:
    info = event["Stage Info"]
    stage = _stage_of(application, info["Stage ID"])
    stage.name = str(info["Stage Name"])
    stage.start = (info.get("Submission Time") or 0) / 1e3 or stage.start
    stage.end = (info.get("Completion Time") or 0) / 1e3
    stage.done = set()


def _task_end(application: Application, event: dict[str, Any]) -> None:
    stage, info = _stage_of(application, event["Stage ID"]), event["Task Info"]
    if event["Task End Reason"]["Reason"] != "Success" or info["Index"] in stage.done:
        stage.retried += 1
        return
    stage.done.add(info["Index"])
    seconds = (info["Finish Time"] - info["Launch Time"]) / 1e3
    start = info["Launch Time"] / 1e3
    stage.start = min(stage.start, start) if stage.start else start
    stage.tasks, stage.seconds, stage.longest = stage.tasks + 1, stage.seconds + seconds, max(stage.longest, seconds)
    metrics = event.get("Task Metrics") or {}
    for kind, part in parts_of_task(_as_rest(info, metrics)).items():
        stage.parts[kind] = stage.parts.get(kind, 0.0) + part
    stage.shuffled += (metrics.get("Shuffle Write Metrics") or {}).get("Shuffle Bytes Written", 0)


def _as_rest(info: dict[str, Any], metrics: dict[str, Any]) -> dict[str, Any]:
    """Return a task as Spark's REST API has it."""
    duration = info["Finish Time"] - info["Launch Time"]
    named: dict[str, Any] = {theirs: metrics.get(name, 0) for name, theirs in _METRICS.items()}
    getting = info["Finish Time"] - info["Getting Result Time"] if info.get("Getting Result Time") else 0
    worked = named["executorDeserializeTime"] + named["executorRunTime"] + named["resultSerializationTime"]
    read, write = metrics.get("Shuffle Read Metrics") or {}, metrics.get("Shuffle Write Metrics") or {}
    named |= {"shuffleReadMetrics": {"fetchWaitTime": read.get("Fetch Wait Time", 0)},
              "shuffleWriteMetrics": {"writeTime": write.get("Shuffle Write Time", 0)}}
    return {"duration": duration, "schedulerDelay": max(0, duration - worked - getting),
            "gettingResultTime": getting, "taskMetrics": named if metrics else None}


def _stage_of(application: Application, number: int) -> LoggedStage:
    return application.stages.setdefault(number, LoggedStage(number))


_HANDLERS: dict[bytes, Callable[[Application, dict[str, Any]], None]] = {
    b'"SparkListenerTaskEnd"': _task_end, b'"SparkListenerJobStart"': _job_start, b'"SparkListenerJobEnd"': _job_end,
    b'"SparkListenerStageSubmitted"': _stage_submitted, b'"SparkListenerStageCompleted"': _stage_completed,
    b'"SparkListenerLogStart"': _log_start, b'"SparkListenerApplicationStart"': _application_start,
    b'"SparkListenerApplicationEnd"': _application_end,
}
