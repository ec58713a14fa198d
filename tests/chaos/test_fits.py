"""Processes are killed in the middle of fits: the models are the same to the bit."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pkgutil import resolve_name

import numpy as np
import pytest
from pyspark.sql import DataFrame

from tests.chaos.arena import opened
from tests.chaos.fits import ESTIMATORS, OPTIONS, FitKill, bits, numbers, rows, struck
from tests.system.topology import Topology
from vispark.ml import loads
from vispark.ml.classification import LogisticRegression
from vispark.ml.recommendation import ALS

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.chaos

#: Modules that workers of Spark are forked with.
IN_TASKS = "vispark.data.tables.read_by_jvm pyspark.ml"

#: By estimator: a fit, and the function that each of its iterations calls in the driver.
FITS: dict[str, tuple[Callable[[DataFrame], list[np.ndarray]], str]] = {
    "LogisticRegression": (lambda df: [LogisticRegression(maxIter=4).fit(df).coefficients.toArray()],
                           "vispark.ml.classes.totals"),
    "ALS": (lambda df: [np.array(row.features) for row in
                        ALS(rank=2, maxIter=2, seed=1).fit(df).userFactors.orderBy("id").collect()],
            "vispark.ml.recommendation.solve"),
}


def test_a_fit_whose_process_is_killed_gives_the_same_bits(local: Topology, monkeypatch: pytest.MonkeyPatch):
    """Kill the device process, with all that it holds, in the pass after a third iteration begins."""
    with opened(local, {}) as arena:
        df = rows(arena)
        for name, (fit, place) in FITS.items():
            expected = fit(df)
            armed, calls = [], []
            really = resolve_name(place.rpartition(".")[0] + ":" + place.rpartition(".")[2])

            def called(*arguments, calls=calls, armed=armed, really=really):
                calls.append(arguments)
                if len(calls) == 3:
                    armed.append(arena.arm("computed"))
                return really(*arguments)

            with monkeypatch.context() as patch:
                patch.setattr(place, called)
                actual = fit(df)
            assert not armed[0].exists(), name
            for one, other in zip(actual, expected, strict=True):
                assert one.tobytes() == other.tobytes(), name
        loads.unload(df)
        arena.check_empty()


#: Estimators, and what is killed under their fits; ``python -m benchmarks.fit_kills`` has all of both.
IN_CI = {"GaussianMixture": "device process", "NMF": "both", "Word2Vec": "Python worker"}


@pytest.mark.timeout(300)
def test_a_fit_under_which_processes_are_killed_at_random_gives_the_same_bits(local: Topology):
    """Repeat kills at other moments until one was missed by its fit."""
    with opened(local, OPTIONS) as arena:
        df, moments = rows(arena).cache(), random.Random(7)
        for name, victim in IN_CI.items():
            fit = ESTIMATORS[name]().fit
            expected = bits(numbers(fit(df)))
            loads.unload()
            began = time.monotonic()
            assert bits(numbers(fit(df))) == expected, f"{name}, undisturbed"
            longest = time.monotonic() - began
            for _ in range(9):
                blow = struck(arena, df, FitKill(name, victim, moments.uniform(0, .8) * longest), expected)
                assert blow.is_same, blow
                if blow.missed:
                    break
            assert blow.missed, blow
        df.unpersist()
        loads.unload()
        arena.check_empty()
