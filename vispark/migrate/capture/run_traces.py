"""Traces of runs: what Spark's event log and vispark's journal of plans say of a run, as a break-down and for Perfetto.

Other than under a profile, no step of a plan is waited for: the run is as it would be without.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vispark.migrate.capture.event_log import Application, LoggedJob, read_log
from vispark.migrate.errors import EventLogError
from vispark.runtime.profiling.profiler import Profile
from vispark.runtime.profiling.spark_jobs import Job, SparkStage, Task

_JOURNAL, _EVENTS, _ENDED = "plans.jsonl", "events", "ended"


@dataclass(frozen=True)
class RunFolder:
    """Folder of what one run of a program writes of itself.

    Parameters
    ----------
    path : Path
        It is made, for its owner alone.
    """

    path: Path

    def settings(self) -> dict[str, str]:
        """Return the settings of Spark and vispark with which a run writes there."""
        (self.path / _EVENTS).mkdir(parents=True, exist_ok=True, mode=0o700)
        place = self.path.resolve()
        return {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{place / _EVENTS}",
                "spark.eventLog.compress": "false", "spark.eventLog.rolling.enabled": "false",
                "spark.vispark.journal": str(place / _JOURNAL)}

    def environment(self) -> dict[str, str]:
        """Return the variables with which a Python program that starts Spark itself writes there."""
        conf = " ".join(f"--conf {shlex.quote(f'{name}={value}')}" for name, value in self.settings().items())
        return os.environ | {"PYSPARK_SUBMIT_ARGS": f"{conf} {os.environ.get('PYSPARK_SUBMIT_ARGS', 'pyspark-shell')}"}

    def note_end(self, ended: float) -> None:
        """Note when the program itself ended, in seconds since 1970: what its application did later is none of it."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.path / _ENDED).write_text(f"{ended}", encoding="utf-8")

    def read(self) -> RunTrace | None:
        """Return the trace of the run that wrote there; None of one that wrote nothing, as it logs elsewhere."""
        logs = sorted((self.path / _EVENTS).iterdir()) if (self.path / _EVENTS).is_dir() else []
        answers = list(_answers(self.path / _JOURNAL))
        for log in logs:
            with suppress(EventLogError):
                return RunTrace(self._of_program(read_log(str(log))), tuple(answers))
        if not answers:
            return None
        start = min(each["ended"] - each["seconds"] for each in answers)
        return RunTrace(Application(start=start, end=max(each["ended"] for each in answers)), tuple(answers))


    def _of_program(self, logged: Application) -> Application:
        """Return an application up to the end that was noted."""
        if not (self.path / _ENDED).exists():
            return logged
        ended = float((self.path / _ENDED).read_text(encoding="utf-8"))
        jobs = {number: job for number, job in logged.jobs.items() if job.start <= ended}
        return replace(logged, end=min(logged.end or ended, ended), jobs=jobs)


@dataclass(frozen=True)
class RunTrace:
    """One run: its application by Spark's event log, and the answers of workers by vispark's journal.

    Examples
    --------
    >>> found = RunTrace(Application(start=100.0, end=104.0, jobs={0: LoggedJob(0, "collect at /x/job.py:3", 101.0, (),
    ...                  102.0)}), ({"ended": 103.5, "seconds": 0.5, "worker": 0.25, "compile": 0.125, "operations":
    ...                  ["vmap"], "line": "/x/job.py:7: w = rows.sum()"},))
    >>> found.document()["lines"]
    {'/x/job.py:7': {'transport': 0.25, 'compile': 0.125, 'kernel': 0.125}, '/x/job.py:3': {'scheduling': 1.0}, \
'': {'driver': 2.5}}
    """

    application: Application
    answers: tuple[Mapping[str, Any], ...] = ()

    def profile(self) -> Profile:
        """Return the run as a profile: seconds by kind of work and by line, and spans for a trace."""
        logged = self.application
        profile = Profile(total=logged.seconds or 0.0, epoch=logged.start)
        for answer in self.answers:
            worker = min(answer["worker"], answer["seconds"])
            parts = {"transport": answer["seconds"] - worker, "compile": min(answer["compile"], worker),
                     "kernel": worker - min(answer["compile"], worker)}
            began = answer["ended"] - answer["seconds"] - logged.start
            profile.add(", ".join(answer["operations"])[:200], parts, profile.started + began, "plans",
                        ":".join(answer["line"].split(":")[:2]))
        profile.jobs = [self._job(job) for job in logged.jobs.values()]
        return profile

    def _job(self, job: LoggedJob) -> Job:
        stages = []
        for stage in self.application.ran(job):
            end = stage.end or stage.start
            # The log's sums are over all tasks: one stands for them.
            task = Task(f"{stage.tasks} tasks", stage.start, end, dict(stage.parts))
            stages.append(SparkStage(stage.number, stage.name, stage.start, end, (task,)))
        return Job(job.number, job.site, job.start, job.end or job.start, tuple(stages))

    def document(self) -> dict[str, Any]:
        """Return the break-down: seconds by kind of work, by line and kind, and plans by line."""
        profile, plans = self.profile(), dict[str, int]()
        for answer in self.answers:
            place = ":".join(answer["line"].split(":")[:2])
            plans[place] = plans.get(place, 0) + 1
        return {"profile": {kind: each for kind, each in profile.seconds.items() if each}, "lines": profile.lines(),
                "plans": plans}


def _answers(journal: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a journal; one that is cut ends it."""
    if journal.exists():
        for line in journal.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                return
