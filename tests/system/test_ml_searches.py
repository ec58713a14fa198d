"""Searches over pipelines of vispark's stages: one load for all folds, few jobs, and files that both packages read."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from pyspark import SparkContext
from pyspark.ml import Pipeline, evaluation, tuning
from pyspark.ml import classification as mllib_classification
from pyspark.ml import feature as mllib_feature
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession

import vispark.ml
from tests.system.topology import Topology
from tests.system.vrdd_tools import EagerPool, cost, host_context
from vispark.ml import classification, feature, loads
from vispark.ml import tuning as selection

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.timeout(300)

#: Modules that workers of Spark are forked with.
IN_TASKS = "vispark.data.tables.read_by_jvm pyspark.ml"


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local, fallback="error") as context:
        yield context


@pytest.fixture(scope="module")
def patients(sc: SparkContext) -> Iterator[DataFrame]:
    """Make columns of numbers and vectors, a class, and numbers of folds, in three partitions of which one is empty."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(90, 4)) * [1, 3, .5, 2]
    rows = [(float(label), *map(float, row[:2]), Vectors.dense(row[2:]), number % 2) for number, (label, row)
            in enumerate(zip(x @ [1, -.4, 2, .1] + rng.normal(size=90) > 0, x, strict=True))]
    parts = sc.parallelize(rows, 2).union(sc.parallelize([], 1))
    df = SparkSession(sc).createDataFrame(parts, ["ill", "a", "b", "others", "fold"]).cache()
    df.count()
    yield df
    loads.unload()
    df.unpersist()


#: Searches by name: how they split.
SEARCHES = {"CrossValidator": {"numFolds": 2, "seed": 3}, "TrainValidationSplit": {"trainRatio": .6, "seed": 3}}


def search(name: str, *, is_mllib: bool = False) -> Any:
    """Return a search over a pipeline of an assembler, a scaler, principal components and a logistic regression."""
    features, classes = (mllib_feature, mllib_classification) if is_mllib else (feature, classification)
    learner = classes.LogisticRegression(featuresCol="shown", labelCol="ill", maxIter=3)
    reduced = features.PCA(inputCol="scaled", outputCol="shown")
    stages = [mllib_feature.VectorAssembler(inputCols=["a", "b", "others"], outputCol="raw"),
              features.StandardScaler(inputCol="raw", outputCol="scaled", withMean=True), reduced, learner]
    grid = tuning.ParamGridBuilder().addGrid(learner.regParam, [.01, 1.0]).addGrid(reduced.k, [2]).build()
    return getattr(tuning if is_mllib else selection, name)(
        estimator=(Pipeline if is_mllib else vispark.ml.Pipeline)(stages=stages), estimatorParamMaps=grid,
        evaluator=evaluation.BinaryClassificationEvaluator(labelCol="ill"), **SEARCHES[name])


@dataclass
class Searched:
    """Models of vispark's searches by name, the loads of each, and the Spark jobs of its fits; one model of MLlib's."""

    models: dict[str, Any] = field(default_factory=dict)
    loads: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, list[int]] = field(default_factory=dict)
    theirs: Any = None


@pytest.fixture(scope="module")
def searched(sc: SparkContext, patients: DataFrame) -> Searched:
    result, load, fit = Searched(), loads._loaded, vispark.ml.Pipeline._fit

    def counted(pipeline: Any, dataset: DataFrame) -> Any:
        models: list[Any] = []
        result.jobs[name].append(cost(sc, lambda: models.append(fit(pipeline, dataset))).jobs)
        return models[0]

    def loaded(*arguments: Any) -> Any:
        result.loads[name] += 1
        return load(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loads, "_loaded", loaded)
        patch.setattr(vispark.ml.Pipeline, "_fit", counted)
        patch.setattr(tuning, "ThreadPool", EagerPool)
        for name in SEARCHES:
            loads.unload()
            result.loads[name], result.jobs[name] = 0, []
            result.models[name] = search(name).fit(patients)
        result.theirs = search(name, is_mllib=True).fit(patients)
    return result


def test_all_folds_are_one_load_and_fits_of_two_jobs(searched: Searched):
    # An assembler looks at the first row of a column of vectors for its length, by a job; the load is another.
    assert searched.loads == {"CrossValidator": 1, "TrainValidationSplit": 1}
    assert searched.jobs == {"CrossValidator": [2, 1, 1, 1, 1], "TrainValidationSplit": [2, 1, 1]}
    np.testing.assert_allclose(searched.models["TrainValidationSplit"].validationMetrics,
                               searched.theirs.validationMetrics, rtol=1e-6)


def test_tuned_models_are_read_by_each_other(searched: Searched, patients: DataFrame, tmp_path: Any):
    shown = {}
    for name, model in {**searched.models, "MLlib's": searched.theirs}.items():
        model.save(str(tmp_path / name))
        read = getattr(tuning, type(model).__name__).load(str(tmp_path / name))
        assert [sorted(each.values()) for each in read.getEstimatorParamMaps()] == [[.01, 2], [1.0, 2]]
        assert read.bestModel.stages[-1].getRegParam() == model.bestModel.stages[-1].getRegParam()
        shown[name] = [row.probability.toArray() for row in read.transform(patients).collect()]
    np.testing.assert_allclose(shown["TrainValidationSplit"], shown["MLlib's"], rtol=1e-6)


def test_searches_are_read_by_each_other(patients: DataFrame, tmp_path: Any):
    # Searches that vispark reads are fitted in the workers: here whatever is not is an error.
    name = "TrainValidationSplit"
    for is_mllib in (False, True):
        written, path = search(name, is_mllib=is_mllib), str(tmp_path / f"search{is_mllib}")
        written.save(path)
        theirs, ours = getattr(tuning, name).load(path), getattr(selection, name).load(path)
        for read, package in ((theirs, "pyspark.ml"), (ours, "vispark.ml")):
            stages = read.getEstimator().getStages()
            assert [type(stage).__module__ for stage in stages[1:]] == [
                f"{package}.feature", f"{package}.feature", f"{package}.classification"], (is_mllib, package)
            assert [sorted(each.values()) for each in read.getEstimatorParamMaps()] == [[.01, 2], [1.0, 2]]
    del written, theirs, read, stages
    gc.collect()
    assert ours.fit(patients).validationMetrics
