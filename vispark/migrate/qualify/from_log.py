"""Qualification of a program by the event log of a run, and by its source where that is at hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

from vispark.migrate.capture.event_log import Application, read_log
from vispark.migrate.errors import SourceError
from vispark.migrate.qualify.from_source import asking
from vispark.migrate.qualify.logged_loops import CallSite, LoggedLoop, loops_of, single_jobs
from vispark.migrate.rules.advice import LoopAdvice, Qualification
from vispark.migrate.rules.functions import FunctionMaker
from vispark.migrate.rules.loop_rules import LoopRules
from vispark.migrate.source.program import LoopStatement, RddCall, SourceProgram

#: A task below these seconds is mostly Spark's own time; tasks that differ more than so many times wait for one.
_SHORT_TASK, _SKEW, _SHORTEST_SKEW = 0.02, 3.0, 0.2


def qualify_log(path: str, source: Path | None = None, imports: bool = True) -> Qualification:
    """Return the loops of a run with their passes and seconds, and, with the source, the verdicts on their operations.

    Parameters
    ----------
    path : str
        The event log, or its URL.
    source : Path, optional
        The program, or a folder somewhere below which it is.
    imports : bool
        Whether the program's imports and definitions may be executed.

    Raises
    ------
    EventLogError
        If it is no event log.
    """
    application = read_log(path)
    sources = _Sources(source, imports)
    loops = [each for loop in loops_of(application) for each in _advised(loop, sources)]
    loops += [each for loop in single_jobs(application) for each in _advised(loop, sources)
              if each.kind != "repeats" and (each.file, each.line) not in {(one.file, one.line) for one in loops}]
    notes = [*application.problems, *sources.notes]
    if not is_tried(application.version):
        notes.append(f"Spark {application.version} wrote the log; those of 3.5 and 4 were tried, and others may have "
                     "their events in other forms")
    ended = [job for job in application.jobs.values() if not job.failed]
    if not application.jobs:
        notes.append("the log has no job")
    elif ended and not loops:
        notes.append("no jobs come again: what runs once gains nothing")
    if any(each.kind == "repeats" for each in loops):
        notes.append("what stands at these lines is not known without the source: --source DIR")
    # Of a run without a job that ended, nothing is known.
    known = bool(loops and sources.programs) or (application.is_complete and bool(ended) and (
        bool(sources.programs) or not loops))
    evidence = "log and source" if sources.programs else "log"
    name = f"{application.name or PurePosixPath(path).name} ({application.number or 'no number'})"
    return Qualification(evidence, name, tuple(loops), tuple(notes), application.seconds,
                         known, {"application": _document(application)})


def is_tried(version: str) -> bool:
    """Return whether logs of a version of Spark are among those that were tried; of an unknown one nothing is said.

    Examples
    --------
    >>> [is_tried(each) for each in ("4.3.0", "3.5.9", "3.2.0", "")]
    [True, True, False, True]
    """
    return not version or f"{version}.".startswith(("3.5.", "4."))


class _Sources:
    """Programs that call sites name, as they are found below a folder.

    Attributes
    ----------
    programs : dict
        By the path that a call site has; None where there is no such file, or it is no Python.
    """

    def __init__(self, where: Path | None, imports: bool):
        self.where, self.imports = where, imports
        self.notes: list[str] = []
        self._read: dict[str, tuple[SourceProgram, FunctionMaker] | None] = {}

    @property
    def programs(self) -> list[SourceProgram]:
        """Those that were found."""
        return [each[0] for each in self._read.values() if each is not None]

    def program(self, file: str) -> tuple[SourceProgram, FunctionMaker] | None:
        """Return the program at a path of a call site, with what makes its functions."""
        if file not in self._read:
            self._read[file] = self._find(file)
        return self._read[file]

    def _find(self, file: str) -> tuple[SourceProgram, FunctionMaker] | None:
        if self.where is None:
            return None
        wanted = PurePosixPath(file).parts
        paths = [self.where] if self.where.is_file() else sorted(self.where.rglob(wanted[-1]))
        # Of several files of one name that which shares most of its path.
        paths = [each for each in paths if each.name == wanted[-1]]
        if not paths:
            self.notes.append(f"{file} is not among the source")
            return None
        best = max(paths, key=lambda each: _shared(each.resolve().parts, wanted))
        try:
            program = SourceProgram.read(best)
        except SourceError as error:
            self.notes.append(error.message)
            return None
        maker = FunctionMaker(program, self.imports)
        self.notes += [f"{best}, {each}" for each in maker.failed]
        return program, maker


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    count = 0
    for ours, theirs in zip(reversed(one), reversed(other), strict=False):
        if ours != theirs:
            break
        count += 1
    return count


def _advised(loop: LoggedLoop, sources: _Sources) -> Iterator[LoopAdvice]:
    """Yield a loop with what the source says of it; nothing where its lines are in no loop of the source."""
    for site in loop.sites:
        read = sources.program(site.file)
        if read is None:
            continue
        program, maker = read
        matched = _matched(program, site)
        if matched is None:
            continue
        if (within := _loop_of(program, matched)) is None:
            return
        advice = LoopRules(program, within[0], within[1], asking(maker)).advice()
        yield _timed(advice, loop)
        return
    site = loop.sites[0]
    yield _timed(LoopAdvice(site.file, site.line, "repeats", ()), loop)


def _matched(program: SourceProgram, site: CallSite) -> RddCall | None:
    """Return the call at a call site: its line is that of the method's name."""
    return next((call for call in program.calls if call.line == site.line and call.method == site.method),
                next((call for call in program.calls if call.line == site.line), None))


def _loop_of(program: SourceProgram, call: RddCall) -> tuple[LoopStatement, list[RddCall]] | None:
    return next(((loop, calls) for loop, calls in program.loops().items() if call in calls), None)


def _timed(advice: LoopAdvice, loop: LoggedLoop) -> LoopAdvice:
    low, middle, high = loop.quartiles
    tasks = sorted(loop.tasks)[len(loop.tasks) // 2]
    return replace(advice, passes=len(loop.passes), jobs=loop.jobs, tasks=tasks, first=loop.passes[0], middle=middle,
                   low=low, high=high, warnings=(*advice.warnings, *_warnings(loop)))


def _warnings(loop: LoggedLoop) -> Iterator[str]:
    growing = all(later >= 1.8 * before for before, later in zip(loop.tasks, loop.tasks[1:], strict=False))
    if len(loop.tasks) > 2 and growing and loop.tasks[0]:
        yield (f"the tasks of a pass double ({', '.join(map(str, loop.tasks[:5]))}): each pass takes twice the last; "
               "give joins a numPartitions")
    if 0 < loop.mean_task < _SHORT_TASK:
        yield f"tasks take {loop.mean_task * 1e3:.0f} ms: fewer partitions spend less on starting them"
    if loop.longest_task > max(_SHORTEST_SKEW, _SKEW * loop.mean_task) and max(loop.tasks) > 1:
        yield (f"the longest task takes {loop.longest_task:.1f} s, the mean {loop.mean_task:.1f} s: the partitions are "
               "of different sizes")


def _document(application: Application) -> dict[str, object]:
    parts: dict[str, float] = {}
    for stage in application.stages.values():
        for kind, seconds in stage.parts.items():
            parts[kind] = parts.get(kind, 0.0) + seconds
    return {"name": application.name, "id": application.number, "spark": application.version,
            "complete": application.is_complete, "jobs": len(application.jobs),
            "tasks": sum(stage.tasks for stage in application.stages.values()),
            "task_seconds": {kind: round(seconds, 3) for kind, seconds in sorted(parts.items())}}
