"""Pipelines of ``pyspark.ml`` whose fits in the workers share one load, with scalers between them as row functions."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from pyspark import SparkContext
from pyspark.errors import AnalysisException
from pyspark.ml import Estimator, Transformer, feature, pipeline
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import FloatType

from vispark.ml.base import DeviceFit, StageOfMLlib, Unsuited
from vispark.ml.java import JavaObjects
from vispark.ml.loads import FieldExpression, Fields, Vectors, View, fits_into, plain, share_view
from vispark.ml.names import of_pyspark
from vispark.ml.predictions import columns_of

#: Stages of one column of vectors that become another one row by row, and their models.
_MOVING = (feature.StandardScaler, feature.MinMaxScaler, feature.MaxAbsScaler, feature.PCA)
_MOVED = (feature.StandardScalerModel, feature.MinMaxScalerModel, feature.MaxAbsScalerModel, feature.PCAModel)
_MODULES = ("classification", "clustering", "feature", "recommendation", "regression")


class Pipeline(pipeline.Pipeline):
    """Pipeline: pyspark's, whose stages that fit in the workers share one load of the data.

    A :class:`~pyspark.ml.feature.VectorAssembler` puts columns side by side as they are loaded. What StandardScaler,
    MinMaxScaler, MaxAbsScaler and PCA make of vectors is computed in the passes of the stages behind them, and is not
    stored. A stage of another kind, and two columns of vectors, end what is shared: stages behind load anew.

    Examples
    --------
    >>> from pyspark.ml.feature import VectorAssembler
    >>> from pyspark.sql import SparkSession
    >>> from vispark.ml.feature import StandardScaler
    >>> from vispark.ml.regression import LinearRegression
    >>> rows = [(2.0 * x + y, x, y) for x in range(4) for y in range(3)]
    >>> df = SparkSession(sc).createDataFrame(rows, ["label", "x", "y"])
    >>> stages = [VectorAssembler(inputCols=["x", "y"], outputCol="raw"),
    ...           StandardScaler(inputCol="raw", outputCol="features"), LinearRegression()]
    >>> model = Pipeline(stages=stages).fit(df)
    >>> (model.stages[-1].coefficients.toArray() / model.stages[1].std.toArray()).round(6)
    array([2., 1.])
    """

    def _fit(self, dataset: DataFrame) -> Any:
        stages = self.getStages()
        for stage in stages:
            if not isinstance(stage, Estimator | Transformer):
                raise TypeError(f"Cannot recognize a pipeline stage of type {type(stage)}.")
        if not any(isinstance(stage, DeviceFit) for stage in stages):
            return super()._fit(dataset)
        last = max((place for place, stage in enumerate(stages) if isinstance(stage, Estimator)), default=-1)
        moved, view = _same(dataset), _first_view(dataset, stages[:last + 1])
        models: list[Any] = []
        for place, stage in enumerate(stages):
            share_view(moved, view)
            model: Any = stage.fit(moved) if isinstance(stage, Estimator) else stage
            models.append(model)
            if place < last:
                moved, behind = model.transform(moved), _view_after(view, model)
                if behind is None:
                    behind, moved = _first_view(moved, stages[place + 1:last + 1]), _same(moved)
                view = behind
        return pipeline.PipelineModel(models)

    @classmethod
    def read(cls) -> Any:
        """Return a reader of saved pipelines, MLlib's own among them, whose stages are vispark's where it has them."""
        return _PipelineReader(pipeline.Pipeline)


class _PipelineReader(pipeline.PipelineReader):
    """Reader of pipelines."""

    def load(self, path: str) -> Pipeline:
        read = super().load(path)
        pipeline: Pipeline = ours(read)
        return pipeline


def _same(df: DataFrame) -> DataFrame:
    """Return another object of a DataFrame, so that what it is a view of ends with it."""
    frame: DataFrame = cast(Any, type(df))(df._jdf, df.sparkSession)
    return frame


def ours(stage: Any) -> Any:
    """Return a stage as vispark's, where it is one of pyspark's that vispark has; of a pipeline its stages, too."""
    if isinstance(stage, pipeline.Pipeline):
        return Pipeline(stages=[ours(each) for each in stage.getStages()])._resetUid(stage.uid)
    package, _, module = type(stage).__module__.rpartition(".")
    if package != "pyspark.ml" or module not in _MODULES:
        return stage
    kind = vars(importlib.import_module(f"vispark.ml.{module}")).get(type(stage).__name__)
    if kind is None or not issubclass(kind, StageOfMLlib):
        return stage
    java = stage._to_java()
    # Of its own, as pyspark lets go of the Java object of a stage that is gone.
    return kind._from_java(java.copy(JavaObjects(SparkContext._active_spark_context).empty_params()))


def _first_view(source: DataFrame, stages: Sequence[Any]) -> View:
    """Return the view of a DataFrame itself, with the fields of all stages that can share its load."""
    wide: Fields = {}
    columns: dict[str, Vectors] = {}
    for stage in stages:
        if isinstance(stage, DeviceFit):
            fields = stage._fields()
            if "x" in fields and fields["x"][0] in columns:
                fields = {**fields, "x": columns[fields["x"][0]].origin}
            together = fits_into(fields, wide)
            if together is not None and _has(source, fields):
                wide = together
        added = _added(View(source, wide, columns), stage)
        if added is None:
            break
        columns |= added
    return View(source, wide, {})


def _view_after(view: View, stage: Any) -> View | None:
    """Return the view of what a model or transformer makes of a DataFrame, or None where it is none of its rows."""
    added = _added(view, stage)
    return None if added is None else replace(view, columns={**view.columns, **added})


def is_fitted_in_workers(estimator: Any) -> bool:
    """Return whether an estimator, or a stage of a pipeline, fits in the workers."""
    stages = estimator.getStages() if isinstance(estimator, pipeline.Pipeline) else [estimator]
    return any(isinstance(stage, DeviceFit) for stage in stages)


def predictions(source: DataFrame, estimator: Any, model: Any) -> View:
    """Return the view of what a fitted model makes of a DataFrame, which shares the load of the fit.

    Raises
    ------
    Unsuited
        If the model, or a stage of it, is none that is known here.
    """
    stages = estimator.getStages() if isinstance(estimator, pipeline.Pipeline) else [estimator]
    models = model.stages if isinstance(model, pipeline.PipelineModel) else [model]
    last = max(place for place, stage in enumerate(stages) if isinstance(stage, Estimator))
    view = _first_view(source, stages[:last + 1])
    for fitted in models:
        behind = _view_after(view, fitted)
        if behind is None:
            raise Unsuited(f"what {type(fitted).__name__} makes of rows is not computed in the workers")
        view = behind
    return view


def _added(view: View, stage: Any) -> Mapping[str, Vectors] | None:
    """Return the column of vectors that a stage adds; an estimator's is without the step that its model will be."""
    if isinstance(stage, feature.VectorAssembler):
        assembled = _assembled(view, stage.getInputCols())
        if assembled is None or stage.getHandleInvalid() != "error":
            return None
        return {stage.getOutputCol(): Vectors(assembled)}
    if not isinstance(stage, _MOVING + _MOVED):
        return _predicted(view, stage)
    name = stage.getInputCol()
    column = view.columns.get(name, Vectors(plain(name)))
    steps = (_step(stage),) if isinstance(stage, _MOVED) else ()
    return {stage.getOutputCol(): replace(column, steps=column.steps + steps)}


def _predicted(view: View, model: Any) -> Mapping[str, Vectors] | None:
    """Return the columns that a fitted predictor adds, or None where it is none."""
    steps = columns_of(model, view.wide)
    if not steps:
        return None
    name = model.getFeaturesCol()
    features = view.columns.get(name, Vectors(plain(name)))
    return {name: replace(features, steps=(*features.steps, step)) for name, step in steps.items()}


def _assembled(view: View, names: Iterable[str]) -> FieldExpression | None:
    """Return the field of columns of a DataFrame side by side, or None where one is no column that it has."""
    schema, columns = view.source.schema, list[Column]()
    for name in names:
        if name not in schema.names:
            return None
        column, kind = sql.col(f"`{name}`"), schema[name].dataType
        columns.append(column if isinstance(kind, VectorUDT | FloatType) else column.cast("double"))
    return f"[{', '.join(map(repr, names))}]", tuple(columns)


def _has(source: DataFrame, fields: Fields) -> bool:
    """Return whether a DataFrame has the columns of some fields."""
    columns = [each for _, given in fields.values() for each in (given if isinstance(given, tuple) else (given,))]
    try:
        source.select(*columns)
    except AnalysisException:
        return False
    return True


def _step(model: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the row function of a model's transform, and its arguments."""
    if isinstance(model, feature.PCAModel):
        return _projected, (np.ascontiguousarray(model.pc.toArray().T),)
    if isinstance(model, feature.StandardScalerModel):
        mean, deviation = model.mean.toArray(), model.std.toArray()
        scale = np.divide(1, deviation, out=np.zeros_like(deviation), where=deviation != 0)
        zeros, unit_scale = np.zeros(len(mean)), np.ones(len(mean))
        return _scaled, (mean if model.getWithMean() else zeros, scale if model.getWithStd() else unit_scale, zeros)
    if isinstance(model, feature.MaxAbsScalerModel):
        most = model.maxAbs.toArray()
        return _scaled, (np.zeros(len(most)), 1 / np.where(most == 0, 1, most), np.zeros(len(most)))
    least, greatest = model.originalMin.toArray(), model.originalMax.toArray()
    low, high = model.getMin(), model.getMax()
    width = greatest - least
    scale = np.divide(high - low, width, out=np.zeros_like(width), where=width != 0)
    return _scaled, (least, scale, np.where(width == 0, (low + high) / 2, low))


def _scaled(x: Any, shift: Any, scale: Any, offset: Any) -> Any:
    return {"x": (x - shift) * scale + offset}


def _projected(x: Any, components: Any) -> Any:
    return {"x": components @ x}


def __getattr__(name: str) -> Any:
    return of_pyspark(pipeline, name)
