"""Where a program's time goes, as a table and as a trace that Perfetto opens.

While a profile is taken, each step of a plan is waited for in the worker, so that its time is its own: steps do not
overlap, and a recorded plan is not replayed. What runs ahead otherwise is waited for too. So the whole takes longer
than without, and the shares are what counts.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gpu_worker.protocol.messages import Times
from vispark.errors import PlanError

#: What time is spent on, in the order of the table.
KINDS = {
    "parse": "records computed and read in Spark's tasks, and packed",
    "transport": "to the workers and back: packed records, messages, results",
    "host-to-device": "copied to devices",
    "compile": "kernels compiled",
    "kernel": "in kernels",
    "exchange": "ghost cells exchanged",
    "scheduling": "Spark's jobs on VRDDs, apart from what tasks that load did",
    "driver": "plans recorded and worked out, results put together, and all else",
}


@dataclass(frozen=True)
class Event:
    """Something that took time: seconds from the profile's start, on a track of its own."""

    name: str
    kind: str
    start: float
    seconds: float
    track: str


@dataclass
class Profile:
    """What :func:`profile` took down.

    Attributes
    ----------
    seconds : dict of str to float
        By kind of work; they add up to ``total``.
    total : float
        Wall time in seconds.
    events : list of Event
        In the order in which they ended.

    Examples
    --------
    >>> found = Profile(total=2.0)
    >>> found.add("reduce", {"kernel": 1.5}, found.started, "worker")
    >>> found.seconds["kernel"]
    1.5
    """

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    total: float = 0.0
    events: list[Event] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    #: Seconds that each thread has added.
    _added: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str, parts: Mapping[str, float], start: float, track: str) -> None:
        """Something that took these seconds by kind, one after the other, from a moment of ``time.monotonic`` on."""
        with self._lock:
            for kind, seconds in parts.items():
                if seconds > 0:
                    self.seconds[kind] += seconds
                    self._added[threading.get_ident()] += seconds
                    self.events.append(Event(name, kind, start - self.started, seconds, track))
                    start += seconds

    @contextmanager
    def around(self, name: str, kind: str, track: str) -> Iterator[None]:
        """What is done meanwhile is of one kind, but for what is added of it, by this thread, while it is done.

        Examples
        --------
        >>> found = Profile()
        >>> with found.around("job", "scheduling", "Spark"):
        ...     found.add("load", {"parse": 9.0}, time.monotonic(), "Spark")
        >>> found.seconds["parse"], found.seconds["scheduling"]
        (9.0, 0.0)
        """
        thread, start = threading.get_ident(), time.monotonic()
        before = self._added[thread]
        yield
        seconds = time.monotonic() - start
        with self._lock:
            rest = max(0.0, seconds - (self._added[thread] - before))
            self.seconds[kind] += rest
            self._added[thread] += rest
            self.events.append(Event(name, kind, start - self.started, seconds, track))

    def table(self) -> str:
        """The break-down, a line for each kind of work.

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

    def save(self, path: str | Path) -> None:
        """Write the trace, for https://ui.perfetto.dev or chrome://tracing: the Trace Event Format's JSON object."""
        numbers = enumerate(dict.fromkeys(event.track for event in self.events), 1)
        tracks = {track: number for number, track in numbers}
        names = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "vispark"}}]
        names += [{"ph": "M", "name": "thread_name", "pid": 1, "tid": number, "args": {"name": track}}
                  for track, number in tracks.items()]
        spans = [{"ph": "X", "name": f"{event.name}: {event.kind}", "cat": event.kind, "pid": 1,
                  "tid": tracks[event.track], "ts": event.start * 1e6, "dur": event.seconds * 1e6}
                 for event in self.events]
        Path(path).write_text(json.dumps({"traceEvents": [*names, *spans], "displayTimeUnit": "ms"}), encoding="utf-8")

    def _finish(self) -> None:
        self.total = time.monotonic() - self.started
        self.seconds["driver"] += max(0.0, self.total - sum(self.seconds.values()))


_current: Profile | None = None


def current() -> Profile | None:
    """The profile that is being taken, if one is."""
    return _current


@contextmanager
def profile(path: str | os.PathLike[str] | None = None) -> Iterator[Profile]:
    """Take down where the time goes of what the program does meanwhile.

    Parameters
    ----------
    path : path, optional
        Where to write a trace that https://ui.perfetto.dev opens.

    Raises
    ------
    PlanError
        If a profile is being taken already.
    OSError
        If the trace cannot be written there; before anything is done.

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
    if path is not None:
        Path(path).touch()      # what cannot be written is an error before the program, not behind it
    found = _current = Profile()
    try:
        yield found
    finally:
        _current = None
        found._finish()
        if path is not None:
            found.save(Path(path))


def parts_of(times: Times, seconds: float) -> dict[str, float]:
    """What an answer's time was spent on that took so many ``seconds``, as one sees it who waited for it.

    Where others were waited for meanwhile, it took longer than it seems, and what is seen has the same shares.
    """
    found = {"host-to-device": times.copy_in, "compile": times.compile, "kernel": times.kernels,
             "exchange": times.exchange}
    busy = sum(found.values())
    if busy > seconds:
        return {kind: each * seconds / busy for kind, each in found.items()}
    return {**found, "transport": seconds - busy}


def job_parts(seconds: float, tasks: Sequence[Mapping[str, float]], slots: int) -> dict[str, float]:
    """What a Spark job's wall time was spent on, of what its tasks say; they ran in so many ``slots`` at once."""
    found: dict[str, float] = defaultdict(float)
    for task in tasks:
        for kind, each in task.items():
            found[kind] += each
    work = sum(found.values())
    longest = max([sum(task.values()) for task in tasks], default=0.0)
    busy = min(seconds, max(longest, work / max(slots, 1)))
    return {**{kind: each * busy / work for kind, each in found.items() if work}, "scheduling": seconds - busy}


@dataclass
class Spent:
    """Seconds by kind of work of one Spark task."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _last: float = field(default_factory=time.monotonic)

    def lap(self, kind: str) -> float:
        """What was done since the last lap was of a kind; the seconds."""
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        self.seconds[kind] += seconds
        return seconds

    def answered(self, times: Times) -> None:
        """What was done since the last lap was to ask a worker, which took that long."""
        now = time.monotonic()
        for kind, seconds in parts_of(times, now - self._last).items():
            self.seconds[kind] += seconds
        self._last = now
