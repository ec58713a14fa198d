"""Verdicts on each template with each dtype: it runs, or is an error as in Python, or the language lacks it.

All of them take a while to judge, so they are kept beside the machine's other temporary files, under a name that
changes with the translator, these templates and NumPy. With operands of two dtypes there are five times as many; those
that a function meets are judged then, and ``--templates`` judges all.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import pickle
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.property.differential import data
from tests.property.differential.compare import expected, imported
from tests.property.differential.coverage import recording
from tests.property.differential.functions import draw
from tests.property.differential.probe import Probe
from tests.property.differential.probes import PROBES
from vispark.translate import TranslationError, trace
from vispark.translate.codegen.scalar.interface import TracedCall
from vispark.translate.fusion import fuse

RUNS, RAISES, LACKS, WRONG = "runs", "error in Python too", "not in the language", "wrong"
#: What a mistake in the translator itself raises.
BROKEN = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
_ROOT = Path(__file__).parents[3]
#: What verdicts depend on.
SOURCES = ("vispark/translate/*.py", *(f"tests/property/differential/{name}.py" for name in (
    "compare", "coverage", "data", "functions", "library_probes", "probe", "probes", "verdicts")))
_CHUNK = 100
#: Rows of this length or more are alike.
_LONG = 3


@dataclass(frozen=True)
class VerdictKey:
    """A template with the dtypes of its operands and the length of its rows."""

    text: str
    dtype: str
    other: str
    length: int


@dataclass(frozen=True)
class Judged:
    """Verdict, what was said where it does not run, and the nodes and functions that met the dtype."""

    kind: str
    words: str = ""
    names: frozenset[str] = frozenset()


_PROBES = {probe.text: probe for probe in PROBES}
_VERDICTS: dict[VerdictKey, Judged] = {}


def keys(mixed: bool) -> list[VerdictKey]:
    """Return all templates with the dtypes and lengths that they may meet; ``mixed``: also with operands of two dtypes.
    """
    return [VerdictKey(probe.text, dtype, other, length) for probe in PROBES for dtype in data.DTYPES
            for other in (data.DTYPES if probe.mixes and mixed else (dtype,)) for length in _lengths(probe)]


def key_of(probe: Probe, dtype: str, other: str, length: int) -> VerdictKey:
    """Return the key that decides for a function of these dtypes, with rows of a length."""
    return VerdictKey(probe.text, dtype, other if probe.mixes else dtype, min(length, _LONG) if probe.rows else _LONG)


def _lengths(probe: Probe) -> tuple[int, ...]:
    return tuple(range(_LONG + 1)) if probe.rows else (_LONG,)


def verdict(key: VerdictKey) -> Judged:
    """Return the verdict on a key: what Python refuses for these types the translator must refuse."""
    if key not in _VERDICTS:
        _VERDICTS[key] = _judged(key)
    return _VERDICTS[key]


def _judged(key: VerdictKey) -> Judged:
    probe, names = _PROBES[key.text], set()
    drawn = draw(f"alone {key.text} {key.dtype} {key.other} {key.length}", key.dtype, key.other, [probe], probe.rows,
                 key.length, alone=True)
    refusal = ""
    with recording() as recorder:
        recorder.clear((key.dtype,))
        try:
            fuse((TracedCall(trace(imported(drawn))),), drawn.record())
        except TranslationError as error:
            refusal = str(error).splitlines()[0]
        except BROKEN as error:
            return Judged(WRONG, f"{type(error).__name__}: {error}")
        names |= {name for name, dtype in recorder.pairs if dtype == key.dtype}
    python = expected(drawn)
    if python.mistyped and not refusal:
        return Judged(WRONG, f"Python refuses it, the translator does not: {python.refused}")
    kind = RAISES if python.refused else LACKS if refusal else RUNS
    return Judged(kind, refusal or python.refused, frozenset(names) if kind == RUNS else frozenset())


# -- all of them ------------------------------------------------------------------------------------------------------

def judge_all(jobs: int, mixed: bool = False) -> dict[VerdictKey, Judged]:
    """Return the verdicts on all keys, kept ones where they are."""
    name = f"vispark-verdicts-{os.getuid()}-{digest(SOURCES)[:16]}{'-mixed' * mixed}"
    file = Path(tempfile.gettempdir()) / name
    if file.exists():
        _VERDICTS.update(pickle.loads(file.read_bytes()))
        return dict(_VERDICTS)
    every = keys(mixed)
    chunks = [every[first:first + _CHUNK] for first in range(0, len(every), _CHUNK)]
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for chunk, judged in zip(chunks, pool.imap(_judge, chunks), strict=True):
            _VERDICTS.update(zip(chunk, judged, strict=True))
    with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as written:
        written.write(pickle.dumps(_VERDICTS))
    os.replace(written.name, file)
    return dict(_VERDICTS)


def _judge(chunk: Sequence[VerdictKey]) -> list[Judged]:
    return [_judged(key) for key in chunk]


def digest(patterns: Sequence[str]) -> str:
    """Return the digest of the sources that patterns name, and of NumPy."""
    files = sorted(path for pattern in patterns for path in _ROOT.glob(pattern) if path.is_file())
    parts = [np.__version__.encode()] + [path.name.encode() + b"\0" + path.read_bytes() for path in files]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()
