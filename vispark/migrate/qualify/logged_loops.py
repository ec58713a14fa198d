"""Loops of an application, from its log alone: jobs of the same places that come again, and jobs whose stages do."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vispark.migrate.capture.event_log import Application, LoggedJob

#: The most jobs of a pass that are looked for.
_MOST_JOBS = 12

_SITE = re.compile(r"(\w+) at (.+):(\d+)")


@dataclass(frozen=True)
class CallSite:
    """Place in a user's program, as Spark notes it: the line of the method's name."""

    method: str
    file: str
    line: int


@dataclass(frozen=True)
class LoggedLoop:
    """Repetition in a log.

    Attributes
    ----------
    sites : tuple of CallSite
        The user's places of a pass, those of its stages among them.
    passes : tuple of float
        Seconds of each pass, from its first job to that of the next.
    tasks : tuple of int
        Tasks of each pass.
    jobs : int
        Jobs of a pass; 0 where all passes are one job.
    """

    sites: tuple[CallSite, ...]
    passes: tuple[float, ...]
    tasks: tuple[int, ...]
    jobs: int
    mean_task: float
    longest_task: float

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """First quartile, median and third quartile of the seconds of all passes but the first."""
        later = sorted(self.passes[1:] or self.passes)
        if len(later) == 1:
            return later[0], later[0], later[0]
        low, middle, high = statistics.quantiles(later, n=4, method="inclusive")
        return low, middle, high


def site_of(text: str) -> CallSite | None:
    """Return the place that a call site names; None where it is not one of Python's.

    Examples
    --------
    >>> site_of("reduce at /x/job.py:85")
    CallSite(method='reduce', file='/x/job.py', line=85)
    >>> site_of("runJob at PythonRDD.scala:181") is None
    True
    """
    match = _SITE.fullmatch(text)
    if match is None or match[2].endswith((".scala", ".java")):
        return None
    return CallSite(match[1], match[2], int(match[3]))


def loops_of(application: Application) -> list[LoggedLoop]:
    """Return the loops of an application, in the order of their first jobs."""
    jobs = [job for job in sorted(application.jobs.values(), key=lambda job: job.number) if not job.failed and job.end]
    loops = []
    for first, period, times in repeats([job.site for job in jobs]):
        loops.append(_of_jobs(application, jobs[first:first + period * times], period))
    loops += [loop for job in jobs if (loop := _of_one_job(application, job)) is not None]
    return [loop for loop in loops if loop.sites]


def single_jobs(application: Application) -> list[LoggedLoop]:
    """Return each job as a loop of one pass: with the source at hand it may turn out to be one that ended at once."""
    return [loop for job in application.jobs.values() if job.end and not job.failed
            and (loop := _of_jobs(application, [job], 1)).sites]


def repeats(names: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the places where a sequence of names repeats: first index, length of the period, number of times.

    Examples
    --------
    >>> list(repeats(["a", "b", "b", "b", "c", "d", "c", "d"]))
    [(1, 1, 3), (4, 2, 2)]
    """
    at = 0
    while at < len(names):
        best = (0, 0)
        for period in range(1, min(_MOST_JOBS, (len(names) - at) // 2) + 1):
            times = 1
            while names[at + times * period:at + (times + 1) * period] == names[at:at + period]:
                times += 1
            if times > 1 and times * period > best[0] * best[1]:
                best = (period, times)
        if best[0]:
            yield (at, *best)
        at += max(1, best[0] * best[1])


def _of_jobs(application: Application, jobs: list[LoggedJob], period: int) -> LoggedLoop:
    starts = [job.start for job in jobs[::period]]
    ends = [*starts[1:], jobs[-1].end]
    passes = [jobs[number:number + period] for number in range(0, len(jobs), period)]
    ran = [[stage for job in each for stage in application.ran(job)] for each in passes]
    sites = [job.site for job in jobs[:period]] + [stage.name for stage in ran[-1]]
    tasks = tuple([sum(stage.tasks for stage in each) for each in ran])
    seconds = sum(stage.seconds for each in ran[1:] for stage in each)
    longest = max([stage.longest for each in ran[1:] for stage in each], default=0.0)
    return LoggedLoop(_sites(sites), tuple([end - start for start, end in zip(starts, ends, strict=True)]), tasks,
                      period, seconds / max(1, sum(tasks[1:])), longest)


def _of_one_job(application: Application, job: LoggedJob) -> LoggedLoop | None:
    """Return the loop that was recorded lazily and ran as one job: stages of the same places come again in it."""
    ran = application.ran(job)
    times = Counter(stage.name for stage in ran if site_of(stage.name) is not None)
    again = {name for name, count in times.items() if count > 1}
    if not again:
        return None
    several = [stage for stage in ran if stage.name in again]
    passes = max(times[name] for name in again)
    seconds = max(stage.end or stage.start for stage in several) - min(stage.start for stage in several)
    tasks = sum(stage.tasks for stage in several)
    return LoggedLoop(_sites(sorted(again)), (max(0.0, seconds) / passes,) * passes, (tasks // passes,) * passes, 0,
                      sum(stage.seconds for stage in several) / max(1, tasks), max(stage.longest for stage in several))


def _sites(names: Sequence[str]) -> tuple[CallSite, ...]:
    return tuple(dict.fromkeys([site for name in names if (site := site_of(name)) is not None]))
