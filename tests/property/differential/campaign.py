"""Runs many drawn functions, and keeps what they covered."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np

from gpu_worker.protocol.errors import CompileError
from tests.golden.harness import record_of
from tests.property.differential import data
from tests.property.differential.compare import Difference, compared, expected, imported
from tests.property.differential.coverage import Pair, recording
from tests.property.differential.functions import Drawn, draw
from tests.property.differential.probes import PROBES, Probe
from tests.property.differential.units import Launch, runner
from vispark.translate import TranslationError, trace
from vispark.translate.fusion import fuse
from vispark.translate.interface import Call

#: Functions in a unit, and probes in a function.
UNIT, MOST_PROBES = {"host": 240, "cuda": 48}, 10
#: How a probe and dtypes stand to each other.
RUNS, RAISES, LACKS, WRONG = "runs", "error in Python too", "not in the language", "wrong"
#: What a mistake in the translator itself raises.
BROKEN = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
Key = tuple[str, str, str, int]


@dataclass
class Tally:
    """What a run found."""

    cases: int = 0
    elements: int = 0
    pairs: Counter[Pair] = field(default_factory=Counter)
    met: Counter[tuple[str, str]] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    seconds: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Another run's."""
        self.cases += other.cases
        self.elements += other.elements
        for mine, theirs in ((self.pairs, other.pairs), (self.met, other.met), (self.seconds, other.seconds)):
            mine.update(theirs)
        self.differences += other.differences


# -- what goes together -----------------------------------------------------------------------------------------------

_VERDICTS: dict[tuple[Probe, str, str, int], tuple[str, str]] = {}


def verdict(probe: Probe, dtype: str, other: str, length: int) -> tuple[str, str]:
    """Whether a probe runs for dtypes, and what was said where it does not.

    What Python refuses for these types the translator must refuse.
    """
    key = probe, dtype, other, length
    if key not in _VERDICTS:
        _VERDICTS[key] = _judged(*key)
    return _VERDICTS[key]


def _judged(probe: Probe, dtype: str, other: str, length: int) -> tuple[str, str]:
    drawn = draw(f"alone {probe.text} {dtype} {other} {length}", dtype, other, [probe], probe.rows, length, alone=True)
    said = ""
    try:
        fn = imported(drawn)
        fuse((Call(trace(fn)),), record_of(drawn.fields))
    except TranslationError as error:
        said = str(error).splitlines()[0]
    except BROKEN as error:
        return WRONG, f"{type(error).__name__}: {error}"
    asked = expected(drawn)
    if asked.mistyped and not said:
        return WRONG, f"Python refuses it, the translator does not: {asked.refused}"
    return (RAISES if asked.refused else LACKS if said else RUNS), said or asked.refused


def _lengths(probe: Probe) -> tuple[int, ...]:
    return (0, 1, 3) if probe.rows else (3,)


def keys() -> list[tuple[Probe, str, str, int]]:
    """All probes with the dtypes and lengths that they may meet."""
    return [(probe, dtype, other, length) for probe in PROBES for dtype in data.DTYPES
            for other in (data.DTYPES if probe.mixes else (dtype,)) for length in _lengths(probe)]


# -- drawing ----------------------------------------------------------------------------------------------------------

class Deck:
    """Deals probes to functions so that all are met equally often."""

    def __init__(self, seed: str):
        self.random = Random(seed)
        self.met: Counter[tuple[str, str]] = Counter()

    def deal(self, dtype: str, other: str, rows: bool, length: int) -> list[Probe]:
        """Probes that run for these dtypes, those met least among some."""
        wanted, dealt = self.random.randint(4, MOST_PROBES), []
        known = [probe for probe in PROBES if probe.rows == rows or (rows and self.random.random() < 0.2)]
        self.random.shuffle(known)
        for probe in sorted(known, key=lambda probe: self.met[probe.text, dtype]):
            if len(dealt) < wanted and self._runs(probe, dtype, other, length):
                dealt.append(probe)
        self.met.update((probe.text, dtype) for probe in dealt)
        return dealt

    def _runs(self, probe: Probe, dtype: str, other: str, length: int) -> bool:
        alike = min(length, 1 if length == 1 else 3) if probe.rows else 3
        return verdict(probe, dtype, other if probe.mixes else dtype, alike)[0] == RUNS


def drawn_functions(seed: str, count: int) -> Iterator[Drawn]:
    """Functions of a seed."""
    deck = Deck(seed)
    for number in range(count):
        one = f"{seed}.{number}"
        random = Random(one)
        dtype = deck.random.choice(data.DTYPES)
        other = deck.random.choice(data.DTYPES) if deck.random.random() < 0.4 else dtype
        rows, length = deck.random.random() < 0.45, random.choice([0, 1, 1, 2, 3, 3, 4, 5, 8, 17])
        yield draw(one, dtype, other, deck.deal(dtype, other, rows, length), rows, length)


# -- running ----------------------------------------------------------------------------------------------------------

def check(functions: Sequence[Drawn], device: str) -> Tally:
    """Functions of one unit, on a device and in Python."""
    tally, launches, kept = Tally(), [], []
    start = time.perf_counter()
    with recording() as recorder:
        for drawn in functions:
            fn = imported(drawn)
            recorder.clear(tuple({array.dtype.name for array in drawn.fields.values()}))
            try:
                call = Call(trace(fn))
                kernel = fuse((call,), record_of(drawn.fields))
            except TranslationError as error:
                tally.differences.append(_told(drawn, f"the translator refuses it: {error}"))
                continue
            except BROKEN as error:
                tally.differences.append(_told(drawn, f"the translator fails: {type(error).__name__}: {error}"))
                continue
            launches.append(Launch(kernel, call, drawn.fields))
            kept.append((drawn, recorder.pairs))
    tally.seconds["translate"] += time.perf_counter() - start
    start = time.perf_counter()
    outputs = _launched(launches, [drawn for drawn, *_ in kept], device, tally)
    tally.seconds["compile and run"] += time.perf_counter() - start
    start = time.perf_counter()
    for (drawn, pairs), launch, given in zip(kept, launches, outputs, strict=True):
        if given is None:
            continue
        asked = expected(drawn)
        found, count = compared(launch.kernel, asked.results, given, drawn.equals,
                                any(array.dtype.kind == "c" for array in drawn.fields.values()))
        tally.cases += 1
        tally.elements += count
        if found is not None:
            tally.differences.append(_told(drawn, _where(drawn, found)))
        elif count:
            tally.pairs.update(pairs)
            tally.met.update((probe.text, drawn.dtype) for probe in drawn.probes)
    tally.seconds["Python"] += time.perf_counter() - start
    return tally


def _launched(launches: list[Launch], drawn: list[Drawn], device: str,
              tally: Tally) -> list[list[np.ndarray] | None]:
    """The outputs of each; one that does not compile is found by halves."""
    if not launches:
        return []
    try:
        return list(runner(device).run(launches))
    except CompileError as error:
        if len(launches) == 1:
            tally.differences.append(_told(drawn[0], f"its kernel does not compile: {error}"))
            return [None]
        half = len(launches) // 2
        return [*_launched(launches[:half], drawn[:half], device, tally),
                *_launched(launches[half:], drawn[half:], device, tally)]


def _where(drawn: Drawn, found: Difference) -> str:
    given = {name: array[found.element] for name, array in drawn.fields.items()}
    return f"result{found.path} of element {found.element}: {found.words}\ngiven {given}"


def _told(drawn: Drawn, words: str) -> str:
    return (f"{words}\n{drawn.source()}dtype {drawn.dtype}; again: python -m tests.property.differential --again "
            f"'{drawn.seed}'\n")


def again(seed: str, device: str) -> Tally:
    """One function of a seed once more, by itself."""
    head, _, number = seed.rpartition(".")
    return check([list(drawn_functions(head, int(number) + 1))[-1]], device)


def _worker(task: tuple[str, int, str, float]) -> Tally:
    seed, count, device, deadline = task
    return check(list(drawn_functions(seed, count)), device) if time.time() < deadline else Tally()


def _judge(key: tuple[Probe, str, str, int]) -> tuple[str, str]:
    return verdict(*key)


def campaign(seed: str, cases: int, jobs: int, device: str, seconds: float = 1e9) -> tuple[Tally, dict[Key, tuple]]:
    """All of it, over processes.

    Parameters
    ----------
    seconds : float
        No unit is started later than this.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    tally, deadline, every = Tally(), time.time() + seconds, keys()
    unit = UNIT[device]
    units = [(f"{seed}/{number}", min(unit, cases - number * unit), device, deadline)
             for number in range(-(-cases // unit))]
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        _VERDICTS.update(zip(every, pool.map(_judge, every, chunksize=50), strict=True))
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=20) as pool:
        for one in pool.imap_unordered(_worker, units):
            tally.add(one)
    return tally, {(probe.text, dtype, other, length): _VERDICTS[probe, dtype, other, length]
                   for probe, dtype, other, length in every}
