"""Runs many drawn functions, and keeps what they covered."""

from __future__ import annotations

import os
import pickle
import resource
import time
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from gpu_worker.protocol.errors import CompileError
from tests.property.differential.compare import Difference, compared, expected, imported
from tests.property.differential.coverage import OperatorPair, is_syntax, recording
from tests.property.differential.dealing import Unit
from tests.property.differential.functions import Drawn
from tests.property.differential.hands import Lost, UnitTask, by_hands
from tests.property.differential.units import UnitLaunch, runner
from tests.property.differential.verdicts import BROKEN, RUNS, SOURCES, Judged, VerdictKey, digest, judge_all
from vispark.translate import TranslationError, trace
from vispark.translate.codegen.scalar.interface import TracedCall
from vispark.translate.fusion import fuse

#: Functions in a unit.
UNIT = {"host": 240, "cuda": 120}
#: How often each node of the form and each operator should meet each dtype in functions that differ, and each library
#: function in records.
WANTED = 500
#: Units before any is steered, how manieth is not steered then, and the names that one unit is steered to.
_FREE, _UNSTEERED, _NAMES = 30, 3, 12
#: What a campaign that goes on must find as it was.
_SOURCES = (*SOURCES, "gpu_worker/device/**/*.h", "tests/property/differential/dealing.py")
#: One unit of so many is compiled as carefully as tests are, the others as fast as it goes.
_CAREFUL = 8


@dataclass
class Tally:
    """Result of a run.

    Attributes
    ----------
    functions : int
        Functions that were compared, each for its dtypes and lengths.
    records : int
        Records that they were compared on.
    pairs : Counter of (str, str)
        Functions in which a node, an operator or a library function met a dtype.
    met : Counter of (str, str)
        Records on which it did.
    """

    functions: int = 0
    records: int = 0
    pairs: Counter[OperatorPair] = field(default_factory=Counter)
    met: Counter[OperatorPair] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    seconds: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Add another run's result."""
        self.functions += other.functions
        self.records += other.records
        for counts, theirs in ((self.pairs, other.pairs), (self.met, other.met), (self.seconds, other.seconds)):
            counts.update(theirs)
        self.differences += other.differences

    def times(self, pair: OperatorPair) -> int:
        """Return the number of times that a pair was met, as :data:`WANTED` counts it."""
        return (self.pairs if is_syntax(pair[0]) else self.met)[pair]


# -- one unit ---------------------------------------------------------------------------------------------------------

class _Clock:
    """Processor seconds of this process and of the compilers that it ran."""

    def __init__(self, tally: Tally) -> None:
        self.tally, self.last = tally, self._now()

    def _now(self) -> float:
        return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))

    def lap(self, name: str) -> None:
        """Book what has passed."""
        now = self._now()
        self.tally.seconds[name] += now - self.last
        self.last = now


def check(functions: Sequence[Drawn], device: str, careful: bool = True) -> Tally:
    """Compare functions of one unit, on a device and in Python."""
    tally, launches, kept = Tally(), [], []
    clock = _Clock(tally)
    with recording() as recorder:
        for drawn in functions:
            recorder.clear(drawn.dtypes)
            try:
                call = TracedCall(trace(imported(drawn)))
                kernel = fuse((call,), drawn.record())
            except TranslationError as error:
                tally.differences.append(_reported(drawn, f"the translator refuses it: {error}"))
                continue
            except BROKEN as error:
                tally.differences.append(_reported(drawn, f"the translator fails: {type(error).__name__}: {error}"))
                continue
            launches.append(UnitLaunch(kernel, call, drawn.arrays()))
            kept.append((drawn, recorder.pairs))
    clock.lap("translate")
    outputs = _launched(launches, [drawn for drawn, _ in kept], device, careful, tally)
    clock.lap("compile and run")
    for (drawn, pairs), launch, values in zip(kept, launches, outputs, strict=True):
        if values is not None:
            _count(tally, drawn, pairs, launch, values)
    clock.lap("Python")
    return tally


def _count(tally: Tally, drawn: Drawn, pairs: set[OperatorPair], launch: UnitLaunch, values: list[np.ndarray]) -> None:
    difference, count = compared(launch.kernel, expected(drawn).results, values, drawn.equals,
                                 any(name.startswith("complex") for name in drawn.dtypes))
    tally.functions += 1
    tally.records += count
    if difference is not None:
        tally.differences.append(_reported(drawn, _where(drawn, difference)))
    elif count:
        tally.pairs.update(pairs)
        tally.met.update(dict.fromkeys(pairs, count))


def _launched(launches: list[UnitLaunch], drawn: list[Drawn], device: str, careful: bool,
              tally: Tally) -> list[list[np.ndarray] | None]:
    """Return the outputs of each; one that does not compile is found by halves."""
    if not launches:
        return []
    try:
        return list(runner(device, careful).run(launches))
    except CompileError as error:
        if len(launches) == 1:
            tally.differences.append(_reported(drawn[0], f"its kernel does not compile: {error}"))
            return [None]
        half = len(launches) // 2
        return [*_launched(launches[:half], drawn[:half], device, careful, tally),
                *_launched(launches[half:], drawn[half:], device, careful, tally)]


def _where(drawn: Drawn, difference: Difference) -> str:
    element = {name: array[difference.element] for name, array in drawn.fields.items()}
    return f"result{difference.path} of element {difference.element}: {difference.words}\ngiven {element}"


def _reported(drawn: Drawn, words: str) -> str:
    return (f"{words}\n{drawn.source()}dtype {drawn.dtype}; again: python -m tests.property.differential --again "
            f"'{drawn.seed}'\n")


def again(name: str, device: str) -> Tally:
    """Check one function once more, by itself."""
    head, _, number = name.rpartition(".")
    return check(list(Unit.parse(head).functions(int(number) + 1))[-1:], device)


# -- many -------------------------------------------------------------------------------------------------------------

def short_of(tally: Tally, verdicts: dict[VerdictKey, Judged]) -> dict[OperatorPair, int]:
    """Return the pairs that were met less often than wanted, those that only templates met among them."""
    reached = set(tally.pairs) | {(name, key.dtype) for key, one in verdicts.items() if one.kind == RUNS
                                  for name in one.names}
    return {pair: tally.times(pair) for pair in sorted(reached) if tally.times(pair) < WANTED}


@dataclass
class _CampaignState:
    """Progress of a campaign that may be interrupted."""

    digest: str
    tally: Tally = field(default_factory=Tally)
    units: set[int] = field(default_factory=set)

    @classmethod
    def found(cls, file: str) -> _CampaignState:
        """Return the kept state, if it is of the sources as they are, or a new one."""
        new = cls(digest(_SOURCES))
        kept = pickle.loads(Path(file).read_bytes()) if file and Path(file).exists() else new
        if kept.digest != new.digest:
            raise ValueError(f"{file} is of other sources; name another file")
        return kept

    def keep(self, file: str) -> None:
        """Write it, so that it is there whole or not at all."""
        if file:
            Path(f"{file}.new").write_bytes(pickle.dumps(self))
            os.replace(f"{file}.new", file)


def _steered(seed: str, number: int, tally: Tally, verdicts: dict[VerdictKey, Judged], coming: Set[OperatorPair]
             ) -> Unit:
    """Return a unit of what was met least and is not coming, of a dtype that lacks much."""
    unit = Unit(seed, number)
    if number < _FREE or number % _UNSTEERED == 0:
        return unit
    missing: dict[str, dict[str, int]] = {}
    for (name, dtype), count in short_of(tally, verdicts).items():
        if (name, dtype) not in coming:
            missing.setdefault(dtype, {})[name] = WANTED - count
    if not missing:
        return unit
    dtype = max(sorted(missing), key=lambda dtype: sum(sorted(missing[dtype].values())[-_NAMES:]))
    names = sorted(missing[dtype], key=lambda name: -missing[dtype][name])[:_NAMES]
    return replace(unit, dtype=dtype, names=tuple(names))


def _work(task: UnitTask) -> Tally:
    functions = list(task.unit.functions(task.high))[task.low:]
    return check(functions, task.device, careful=task.unit.number % _CAREFUL == 0)


def _lost(lost: Lost) -> Tally:
    drawn = list(lost.task.unit.functions(lost.task.high))[-1]
    return Tally(1, differences=[_reported(drawn, f"its process {lost.words}")])


def campaign(seed: str, cases: int, jobs: int, device: str, seconds: float = 1e9,
             state: str = "") -> tuple[Tally, dict[VerdictKey, Judged]]:
    """Run all of a campaign, over processes; the verdicts on templates are there if it was long enough to be steered by
    them.

    Parameters
    ----------
    cases : int
        Functions to draw.
    seconds : float
        No unit is started later than this.
    state : str
        A file from which a campaign goes on, and which is kept up to date.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    deadline = time.monotonic() + seconds
    size = UNIT[device]
    count = -(-cases // size)
    # Before there are processes, each of which would find the verdicts that it needs by itself.
    verdicts = judge_all(jobs) if count > _FREE else {}
    at = _CampaignState.found(state)
    coming: dict[int, set[OperatorPair]] = {}

    def tasks() -> Iterator[UnitTask]:
        for number in range(count):
            if time.monotonic() > deadline:
                return
            if number in at.units:
                continue
            unit = _steered(seed, number, at.tally, verdicts, set().union(*coming.values()))
            coming[number] = {(name, unit.dtype) for name in unit.names}
            yield UnitTask(unit, device, 0, min(size, cases - number * size))

    for outcome in by_hands(_work, tasks(), jobs):
        at.tally.add(_lost(outcome) if isinstance(outcome, Lost) else outcome.result)
        at.units.add(outcome.task.unit.number)
        coming.pop(outcome.task.unit.number, None)
        at.keep(state)
    return at.tally, verdicts
