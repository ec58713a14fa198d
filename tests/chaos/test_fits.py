"""A device process is killed in the middle of a fit: the model is the same to the bit."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name

import numpy as np
import pytest
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession

from tests.chaos.arena import Arena, opened
from tests.system.topology import Topology
from vispark.ml import loads
from vispark.ml.classification import LogisticRegression
from vispark.ml.recommendation import ALS

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.chaos

#: By estimator: a fit, and the function that each of its iterations calls in the driver.
FITS: dict[str, tuple[Callable[[DataFrame], list[np.ndarray]], str]] = {
    "LogisticRegression": (lambda df: [LogisticRegression(maxIter=4).fit(df).coefficients.toArray()],
                           "vispark.ml.classes.totals"),
    "ALS": (lambda df: [np.array(row.features) for row in
                        ALS(rank=2, maxIter=2, seed=1).fit(df).userFactors.orderBy("id").collect()],
            "vispark.ml.recommendation.solve"),
}


def rows(arena: Arena) -> DataFrame:
    rng = np.random.default_rng(3)
    data = [(float(index % 2), Vectors.dense(row), index % 5, index % 7, float(index % 4)) for index, row
            in enumerate(rng.random((60, 3)))]
    return SparkSession(arena.sc).createDataFrame(arena.sc.parallelize(data, 3),
                                                  ["label", "features", "user", "item", "rating"])


def test_a_fit_whose_process_is_killed_gives_the_same_bits(local: Topology, monkeypatch: pytest.MonkeyPatch):
    """In the pass after a third iteration begins the device process is killed, with all that it holds."""
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
                found = fit(df)
            assert not armed[0].exists(), name
            for one, other in zip(found, expected, strict=True):
                assert one.tobytes() == other.tobytes(), name
        loads.unload(df)
        arena.check_empty()
