"""Profile of a program's time, as a table and as a trace that Perfetto opens.

The table adds up to the wall time. A moment at which the driver waits for a plan's answer is the plan's; any other at
which Spark's tasks run is shared by them alike, and each task's share is divided as its metrics say; any other at which
a Spark job is under way is its scheduling; and all else is the driver's.

While a profile is taken, each step of a plan is waited for in the worker, so that its time is its own: steps do not
overlap, and a recorded plan is not replayed. What runs ahead otherwise begins as without, and is waited for too. So the
whole takes longer than without, and the shares are what counts. What devices are said to do, they take the time of
themselves; what a worker does beside is scheduling.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext

from gpu_worker.protocol.messages import Times
from vispark._utils.callers import user_line
from vispark._utils.lazy import LazyModule
from vispark._utils.writable import why_unwritable
from vispark.errors import PlanError
from vispark.runtime.profiling.attribution import shares, tracks
from vispark.runtime.profiling.spark_jobs import Job, SparkStage, Task, jobs_since, jobs_so_far

if TYPE_CHECKING:
    from vispark._utils import displays
else:
    # Spark's tasks take times with this module, and show nothing.
    displays = LazyModule("vispark._utils.displays")

log = logging.getLogger(__name__)

#: What time is spent on, in the order of the table.
KINDS = {
    "parse": "records computed and read in Spark's tasks that load, and packed",
    "transport": "to the workers and back: packed records, messages, results",
    "host-to-device": "copied to devices",
    "compile": "kernels compiled",
    "kernel": "in kernels",
    "exchange": "ghost cells exchanged",
    "python": "waited for in Spark's tasks: Python workers and their functions, files",
    "jvm": "computed by the JVM in Spark's tasks",
    "shuffle": "shuffles written and waited for",
    "gc": "garbage collected in JVMs while tasks ran",
    "serialisation": "tasks read and their results written by executors",
    "scheduling": "Spark's jobs while no task ran, tasks on their way, and workers' launching",
    "driver": "plans recorded and worked out, results put together, and all else",
}

_LINE = re.compile(r"[^\n]*?\.\w+:\d+(?=:|$)")

#: Tasks that a trace shows; of more it has the stages.
_SHOWN_TASKS = 2000


@dataclass(frozen=True)
class Event:
    """Something that took time: seconds from the profile's start, on some track, as part of an answer."""

    name: str
    kind: str
    start: float
    seconds: float
    track: str
    answer: int
    #: The user's line that waited: file and number.
    line: str = ""


@dataclass
class Profile:
    """Result of :func:`profile`: where the program's time went.

    Attributes
    ----------
    total : float
        Wall time in seconds.
    events : list of Event
        What the driver waited for in workers, in the order in which it ended.
    jobs : list of vispark.runtime.profiling.spark_jobs.Job
        Spark's jobs, with their stages and tasks.
    forgotten : int
        How many more jobs there were, of which Spark remembers nothing; their time is the driver's. Spark remembers the
        last ``spark.ui.retainedJobs`` jobs and ``spark.ui.retainedStages`` stages.

    Examples
    --------
    >>> found = Profile(total=2.0)
    >>> found.add("reduce", {"kernel": 1.5}, found.started, "worker")
    >>> found.seconds["kernel"], found.seconds["driver"]
    (1.5, 0.5)
    """

    total: float = 0.0
    events: list[Event] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    forgotten: int = 0
    started: float = field(default_factory=time.monotonic)
    #: The same moment by the clock that Spark's driver notes times by.
    epoch: float = field(default_factory=time.time)
    _answers: int = 0
    _task_seconds: dict[tuple[int, int], Mapping[str, float]] = field(default_factory=dict)
    #: By application, the number of its first job that counts.
    _first: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def seconds(self) -> dict[str, float]:
        """By kind of work; they add up to ``total``. Before its end a profile knows nothing of Spark's jobs."""
        by_kind = dict.fromkeys(KINDS, 0.0)
        for _, kind, seconds in self._attributed():
            by_kind[kind] += seconds
        return by_kind

    def lines(self) -> dict[str, dict[str, float]]:
        """Return seconds by the user's line, as "job.py:12", and kind of work; they add up to ``total``.

        What the driver does beside plans and jobs has no line, and is below "".

        Returns
        -------
        dict of str to dict of str to float
            Seconds by kind of work, those above 0, below each line.

        Examples
        --------
        >>> found = Profile(total=2.0)
        >>> found.add("reduce", {"kernel": 1.5}, found.started, "worker", "job.py:12")
        >>> found.lines()
        {'job.py:12': {'kernel': 1.5}, '': {'driver': 0.5}}
        """
        by_line: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for line, kind, seconds in self._attributed():
            if seconds > 0:
                by_line[line][kind] += seconds
        return {line: dict(kinds) for line, kinds in by_line.items()}

    def _attributed(self) -> Iterator[tuple[str, str, float]]:
        """Yield the shares of the time: the user's line, where one is known, kind of work, and seconds."""
        events = self.events[:]
        located = [(_site(job), task) for job in self.jobs for stage in job.stages for task in stage.tasks]
        tasks = [task for _, task in located]
        levels = [[(event.start, event.start + event.seconds) for event in events],
                  list(map(self._between, tasks)), list(map(self._between, self.jobs))]
        (plans, of_tasks, of_jobs), nobodys = shares(levels, self.total or time.monotonic() - self.started)
        for event, seconds in zip(events, plans, strict=True):
            yield event.line, event.kind, seconds
        for (line, task), seconds in zip(located, of_tasks, strict=True):
            work = sum(task.parts.values())
            for kind, part in task.parts.items() if work else [("scheduling", 1.0)]:
                yield line, kind, seconds * part / (work or 1.0)
        for job, seconds in zip(self.jobs, of_jobs, strict=True):
            yield _site(job), "scheduling", seconds
        yield "", "driver", nobodys

    def add(self, name: str, parts: Mapping[str, float], start: float, track: str, line: str = "") -> None:
        """Record an operation's seconds by kind, as consecutive events from the time ``start`` of ``time.monotonic``
        on; ``line`` is the user's, which waits.
        """
        with self._lock:
            self._answers += 1
            for kind, seconds in parts.items():
                if seconds > 0:
                    self.events.append(Event(name, kind, start - self.started, seconds, track, self._answers, line))
                    start += seconds

    def add_task_seconds(self, stage: int, partition: int, seconds: Mapping[str, float]) -> None:
        """Record the seconds that a Spark task's Python worker measured, by kind of work."""
        with self._lock:
            self._task_seconds[stage, partition] = seconds

    def _between(self, what: Job | SparkStage | Task) -> tuple[float, float]:
        """Return start and end of a job, stage or task, in seconds from the profile's start."""
        start = min(max(what.start - self.epoch, 0.0), self.total)
        return start, max(start, min(what.end - self.epoch, self.total))

    def table(self) -> str:
        """Return the break-down, a line for each kind of work.

        Returns
        -------
        str
            In each line the kind, seconds and per cent of the wall time; the last line has the whole.

        Examples
        --------
        >>> found = Profile(total=2.0)
        >>> found.add("reduce", {"kernel": 1.5}, found.started, "worker")
        >>> print(found.table().splitlines()[4])
        kernel              1.500000 s   75.0 %  in kernels
        """
        whole = self.total or 1.0
        lines = [f"{kind:<16}{seconds:>12.6f} s {100 * seconds / whole:>6.1f} %  {KINDS[kind]}"
                 for kind, seconds in self.seconds.items()]
        return "\n".join([*lines, f"{'in all':<16}{self.total:>12.6f} s"])

    def __repr__(self) -> str:
        spent = sorted(self.seconds.items(), key=lambda each: -each[1])
        shares = ", ".join(f"{kind} {seconds:.3f} s" for kind, seconds in spent[:3] if seconds)
        return f"Profile({self.total:.3f} s{': ' * bool(shares)}{shares})"

    def _repr_mimebundle_(self, include: Container[str] | None = None,
                          exclude: Container[str] | None = None) -> dict[str, Any]:
        """Return the break-down as :meth:`table` writes it, and the same as an HTML table."""
        whole, seconds = self.total or 1.0, self.seconds
        rows = [(kind, f"{each:.6f} s", f"{100 * each / whole:.1f} %", KINDS[kind]) for kind, each in seconds.items()]
        markup = displays.table("Profile", [*rows, ("in all", f"{self.total:.6f} s", "", "")], numbers=(1, 2))
        return displays.bundle(f"Profile\n{self.table()}", markup, include, exclude)

    def save(self, path: str | Path) -> None:
        """Write the trace, for https://ui.perfetto.dev or chrome://tracing: the Trace Event Format's JSON object.

        Parameters
        ----------
        path : str or Path
            Of the file, which is written anew.

        Raises
        ------
        OSError
            If the file cannot be written.

        Examples
        --------
        >>> import json, tempfile
        >>> from vispark import profile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with profile() as found:
        ...         pass
        ...     found.save(f"{folder}/trace.json")
        ...     sorted(json.loads(Path(folder, "trace.json").read_text()))[-1]
        'traceEvents'
        """
        spans = [*self._worker_spans(), *self._spark_spans()]
        numbers = enumerate(dict.fromkeys(span["tid"] for span in spans), 1)
        names: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "vispark"}}]
        by_track = {track: number for number, track in numbers}
        names += [{"ph": "M", "name": "thread_name", "pid": 1, "tid": number, "args": {"name": track}}
                  for track, number in by_track.items()]
        for span in spans:
            span["tid"] = by_track[span["tid"]]
        Path(path).write_text(json.dumps({"traceEvents": [*names, *spans], "displayTimeUnit": "ms"}), encoding="utf-8")

    def _worker_spans(self) -> Iterator[dict[str, Any]]:
        """Yield the trace's slices of workers' answers; answers that overlap, of several threads, are on separate
        tracks.
        """
        events: dict[str, dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
        for event in sorted(self.events, key=lambda event: event.start):
            events[event.track][event.answer].append(event)
        for name, by_answer in events.items():
            answers = list(by_answer.values())
            between = [(parts[0].start, parts[-1].start + parts[-1].seconds) for parts in answers]
            for parts, track in zip(answers, tracks(between), strict=True):
                for event in parts:
                    yield _span(f"{event.name}: {event.kind}", event.kind, _track_name(name, track), event.start,
                                event.seconds)

    def _spark_spans(self) -> Iterator[dict[str, Any]]:
        """Yield the trace's slices of jobs, stages and tasks; overlapping ones are on separate tracks."""
        stages = [stage for job in self.jobs for stage in job.stages]
        tasks = [task for stage in stages for task in stage.tasks]
        yield from self._on_tracks("Spark jobs", [(f"job {job.number}: {job.name}", job, {}) for job in self.jobs])
        yield from self._on_tracks("Spark stages", [
            (f"stage {stage.number}: {stage.name}", stage, _added_up(stage.tasks)) for stage in stages])
        if len(tasks) <= _SHOWN_TASKS:
            yield from self._on_tracks("Spark tasks", [(task.name, task, dict(task.parts)) for task in tasks])

    def _on_tracks(self, name: str, intervals: list[tuple[str, Any, dict[str, float]]]) -> Iterator[dict[str, Any]]:
        between = [self._between(what) for _, what, _ in intervals]
        for (title, what, parts), (start, end), track in zip(intervals, between, tracks(between), strict=True):
            within = _track_name(name, track)
            yield _span(title, name, within, start, end - start) | ({"args": parts} if parts else {})
            if isinstance(what, Task) and parts:
                work = sum(parts.values())
                for kind, part in parts.items():
                    seconds = (end - start) * part / work
                    yield _span(kind, kind, within, start, seconds)
                    start += seconds

    def _begin(self) -> None:
        """Record the number of the first job that counts."""
        context = SparkContext._active_spark_context
        if context is not None and context._jsc:
            self._first[context.applicationId] = jobs_so_far(context)

    def _leave(self, context: SparkContext) -> None:
        """Ask Spark for the times of a context's jobs, before the context stops.

        The stages of the next context have the same numbers, and tasks have told nothing of these yet.
        """
        with self._lock:
            task_seconds, self._task_seconds = self._task_seconds, {}
        if context._jsc:
            jobs, forgotten = jobs_since(context, self._first.get(context.applicationId, 0), task_seconds)
            self.jobs += jobs
            self.forgotten += forgotten

    def _finish(self) -> None:
        self.total = time.monotonic() - self.started
        if SparkContext._active_spark_context is not None:
            self._leave(SparkContext._active_spark_context)
        if self.forgotten:
            log.warning("Spark remembers nothing of %d jobs, whose time the profile has as the driver's: "
                        "spark.ui.retainedJobs and spark.ui.retainedStages say how many it remembers", self.forgotten)


def _site(job: Job) -> str:
    """Return the user's line of a job, which its name ends with, as "collect at job.py:12"."""
    return _place(job.name.rpartition(" at ")[2])


def _place(text: str) -> str:
    """Return the file and the number of a line that begins with them; nothing where it does not."""
    match = _LINE.match(text)
    return match[0] if match else ""


def _span(name: str, category: str, track: str, start: float, seconds: float) -> dict[str, Any]:
    """Return a slice of a trace, still with its track's name."""
    return {"ph": "X", "name": name, "cat": category, "pid": 1, "tid": track, "ts": start * 1e6, "dur": seconds * 1e6}


def _track_name(name: str, track: int) -> str:
    """Return the name of one of several adjacent tracks."""
    return f"{name} {track + 1}" if track else name


def _added_up(tasks: tuple[Task, ...]) -> dict[str, float]:
    """Return seconds by kind of work of several tasks."""
    totals: dict[str, float] = defaultdict(float)
    for task in tasks:
        for kind, seconds in task.parts.items():
            totals[kind] += seconds
    return dict(totals)


_current: Profile | None = None


def current() -> Profile | None:
    """Return the profile that is being taken, if one is."""
    return _current


@contextmanager
def profile(path: str | os.PathLike[str] | None = None) -> Iterator[Profile]:
    """Take down where the time goes of what the program does meanwhile.

    Parameters
    ----------
    path : path, optional
        Where to write a trace that https://ui.perfetto.dev opens.

    Returns
    -------
    context manager
        ``with`` gives the :class:`Profile`; ``total`` and what Spark's jobs took are known when the block has ended.

    Raises
    ------
    PlanError
        If a profile is being taken already, or the trace cannot be written there: before anything is done.
    OSError
        If the trace can be written no more at the end; :meth:`Profile.save` writes it elsewhere. What the program
        itself raises then has that as a note.

    Examples
    --------
    >>> numbers = sc.parallelize([1.0, 2.0, 3.0], 2).cache("GPU")
    >>> with profile() as found:
    ...     total = numbers.vmap(lambda x: 2 * x).sum()
    >>> total, found.seconds["kernel"] > 0
    (12.0, True)
    >>> print(found.table())                                        # doctest: +ELLIPSIS
    parse ...
    """
    global _current
    if _current is not None:
        raise PlanError("a profile is being taken already: leave that one first")
    trace = None if path is None else Path(path).absolute()
    if trace is not None and (why := why_unwritable(trace)):
        raise PlanError(f"the trace {trace} cannot be written: {why}")
    profiled = Profile()
    profiled._begin()
    _current = profiled
    with ExitStack() as stack:
        stack.push(partial(_end, profiled, trace))
        yield profiled


def _end(profiled: Profile, trace: Path | None, _: type | None, error: BaseException | None, __: object) -> None:
    """End a profile behind a program that may have failed, whose error stays the one that is raised."""
    global _current
    _current = None
    profiled._finish()
    if trace is None:
        return
    try:
        profiled.save(trace)
    except OSError as unwritten:
        if error is None:
            raise
        error.add_note(f"the trace of the profile that was being taken cannot be written either: {unwritten}")


def parts_of(times: Times, seconds: float) -> dict[str, float]:
    """Return the parts of an answer's time by kind of work, scaled to the ``seconds`` that the caller waited.

    Where others were waited for meanwhile, it took longer than it seems, and what is seen has the same shares.
    """
    parts = {"host-to-device": times.copy_in, "compile": times.compile, "kernel": times.kernels,
             "exchange": times.exchange, "scheduling": times.scheduling}
    busy = sum(parts.values())
    if busy > seconds:
        return {kind: each * seconds / busy for kind, each in parts.items()}
    return {**parts, "transport": seconds - busy}


def answered(labels: Sequence[str], times: Times, began: float, runtime_dir: str, *, relayed: bool = False) -> None:
    """Record a plan's answer in the current profile, if any; the driver has waited for it since ``began``.

    What a plan that is relayed spends on its way is Spark's.
    """
    if _current is None:
        return
    parts = parts_of(times, time.monotonic() - began)
    if relayed:
        parts["scheduling"] += parts.pop("transport", 0.0)
    _current.add(", ".join(labels) or "take", parts, began, f"worker {runtime_dir}", _place(user_line()))


def leaving(context: SparkContext) -> None:
    """Query Spark for what the current profile, if any, needs to know of a context that is about to stop."""
    if _current is not None:
        _current._leave(context)


@dataclass
class TaskSeconds:
    """Seconds by kind of work of one Spark task."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _last: float = field(default_factory=time.monotonic)

    def lap(self, kind: str) -> float:
        """Attribute the time since the last lap to a kind of work; return its seconds."""
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        self.seconds[kind] += seconds
        return seconds

    def answered(self, times: Times) -> None:
        """Attribute the time since the last lap to a request to a worker, which reported these ``times``."""
        now = time.monotonic()
        for kind, seconds in parts_of(times, now - self._last).items():
            self.seconds[kind] += seconds
        self._last = now
