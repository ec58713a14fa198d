"""pyspark.ml's own examples, of the installed version, run with vispark.ml's classes in place of pyspark's."""

from __future__ import annotations

import doctest
import importlib
import os
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context

pytest.importorskip("pyarrow")

#: The classes, by the module's name in both packages.
CLASSES = {"classification": ["LogisticRegression", "LinearSVC", "FMClassifier"],
           "regression": ["LinearRegression", "GeneralizedLinearRegression", "FMRegressor"],
           "feature": ["PCA", "StandardScaler", "MinMaxScaler", "MaxAbsScaler", "BucketedRandomProjectionLSH",
                       "MinHashLSH", "Word2Vec"],
           "clustering": ["KMeans", "BisectingKMeans", "GaussianMixture"], "recommendation": ["ALS"],
           "evaluation": ["BinaryClassificationEvaluator", "ClusteringEvaluator", "MulticlassClassificationEvaluator",
                          "RegressionEvaluator"],
           "pipeline": ["Pipeline"], "tuning": ["CrossValidator", "TrainValidationSplit"]}

#: Examples that differ, by class: how they begin, and why.
DIFFERENCES: dict[str, dict[str, str]] = {
    "LogisticRegression": dict.fromkeys(["mdf = ", "mlorModel = ", "mlorModel.coefficientMatrix",
                                         "mlorModel.interceptVector"], "a data file that wheels do not have"),
    "KMeans": {"model.predict(df.head().features)": "1: centres are those of other draws, in another order"},
    "BisectingKMeans": {"summary.trainingCost": "4.0: squares of large numbers are not subtracted"}}

CASES = [(module, name) for module, names in CLASSES.items() for name in names]


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


@pytest.fixture(autouse=True)
def printed() -> Iterator[None]:
    """Print arrays as pyspark's examples expect."""
    with np.printoptions(legacy="1.13"):
        yield


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("module", "name"), CASES, ids=[name for _, name in CASES])
def test_examples_of_pyspark(sc: SparkContext, tmp_path, module: str, name: str):
    theirs = importlib.import_module(f"pyspark.ml.{module}")
    ours = importlib.import_module(f"vispark.ml.{module}")
    names = {**vars(theirs), **{one: vars(ours)[one] for one in (name, f"{name}Model") if one in vars(ours)},
             "spark": SparkSession(sc), "sc": sc, "temp_path": str(tmp_path)}
    test = doctest.DocTestParser().get_doctest(getattr(theirs, name).__doc__, names, name, None, 0)
    runner = _Noting(optionflags=doctest.ELLIPSIS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner.run(test, out=lambda text: None)
    expected = DIFFERENCES.get(name, {})
    differ = {source: text for source, text in runner.failed.items()
              if not any(source.startswith(one) for one in expected)}
    assert not differ, "\n".join(f"{source}{text}" for source, text in differ.items())
    unmatched = [one for one in expected if not any(source.startswith(one) for source in runner.failed)]
    assert not unmatched, f"these hold, and are to be taken out: {unmatched}"
    assert len(test.examples) > 5 or name == "Pipeline"


class _Noting(doctest.DocTestRunner):
    """Runner that keeps what came in place of what was expected."""

    def __init__(self, **options: int):
        super().__init__(verbose=False, **options)
        self.failed: dict[str, str] = {}

    def report_failure(self, out, test, example, output):
        self.failed[example.source] = f"{output}instead of {example.want}"

    def report_unexpected_exception(self, out, test, example, exc_info):
        self.failed[example.source] = f"{exc_info[0].__name__}: {str(exc_info[1])[:2000]}{os.linesep}"
