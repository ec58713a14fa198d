"""A few draws of the sweep over all parameters (``python -m tests.parity``), and that each parameter is in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.parity import SWEEPS, UNSWEPT, outcomes
from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context
from vispark.ml.installation import ESTIMATORS

pytest.importorskip("pyarrow")

#: Modules that workers of Spark are forked with.
IN_TASKS = "vispark.data.tables.read_by_jvm pyspark.ml"

#: Estimators of which CI takes a draw.
IN_CI = ["LinearRegression", "LogisticRegression", "GeneralizedLinearRegression", "BisectingKMeans", "ALS"]
#: Replaced names that are no estimators with numbers of their own; what they take is tested in test_ml_searches.py.
OTHERS = {"Pipeline", "CrossValidator", "TrainValidationSplit", "BucketedRandomProjectionLSHModel", "MinHashLSHModel"}


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local, fallback="error") as context:
        yield context


def test_each_parameter_of_each_estimator_is_swept_or_named(sc: SparkContext):
    assert set(SWEEPS) == {each.__name__ for each in ESTIMATORS} - OTHERS
    for name, sweep in SWEEPS.items():
        params = {param.name for param in getattr(sweep.theirs, name)().params}
        named = {*sweep.values, *sweep.fixed, *sweep.unswept, *UNSWEPT}
        assert params <= named, f"{name}: neither swept nor named: {params - named}"
        assert {*sweep.values, *sweep.fixed, *sweep.unswept} <= params, name


def test_models_are_mllibs_whatever_the_parameters(sc: SparkContext):
    for name, params, text in outcomes(SparkSession(sc), IN_CI, 1, seed=1):
        assert not text, f"{name}: {text}: {params}"
