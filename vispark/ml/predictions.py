"""Columns that fitted models add to a DataFrame, as row functions of their features: what evaluations need of them.

A row function takes the field ``x`` of a record, and gives a dict of a new one, as the steps of a pipeline do. MLlib's
``transform`` gives the same but for rounding.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from pyspark.ml import classification, clustering, regression

from vispark.ml.base import Unsuited
from vispark.ml.families import mean_of
from vispark.ml.regression import powers

#: A row function, and its arguments.
RowStep = tuple[Any, tuple[Any, ...]]


def columns_of(model: Any, fields: Collection[str]) -> Mapping[str, RowStep]:
    """Return the row functions of the columns that a model adds to records of some fields, by the columns' names.

    There are none of a model that is not known here, nor of one class alone, whose scores Spark refuses to evaluate.
    """
    if getattr(model, "numClasses", 2) < 2:
        return {}
    if isinstance(model, classification.LogisticRegressionModel):
        return _logistic(model)
    if isinstance(model, classification.LinearSVCModel):
        margin = (_margins, (model.coefficients.toArray()[None, :], np.array([model.intercept])))
        return {model.getRawPredictionCol(): margin,
                model.getPredictionCol(): (_is_above, (*margin[1], float(model.getThreshold())))}
    if isinstance(model, classification.FMClassificationModel):
        machine = model.intercept, model.linear.toArray(), model.factors.toArray()
        return {model.getRawPredictionCol(): (_machine_margins, machine),
                model.getProbabilityCol(): (_machine_shares, machine),
                model.getPredictionCol(): (_machine_class, (*machine, _thresholds(model, 2)))}
    if isinstance(model, regression.LinearRegressionModel):
        return {model.getPredictionCol(): (_line, (model.coefficients.toArray(), float(model.intercept)))}
    if isinstance(model, regression.FMRegressionModel):
        machine = model.intercept, model.linear.toArray(), model.factors.toArray()
        return {model.getPredictionCol(): (_machine, machine)}
    if isinstance(model, regression.GeneralizedLinearRegressionModel) and "o" in fields:
        with suppress(Unsuited):
            return {model.getPredictionCol(): (
                _generalized, (model.coefficients.toArray(), float(model.intercept), *powers(model)))}
    if isinstance(model, clustering.KMeansModel):
        by_cosine = model.getDistanceMeasure() == "cosine"
        return {model.getPredictionCol(): (_nearest, (np.array(model.clusterCenters()), by_cosine))}
    return {}


def _logistic(model: Any) -> Mapping[str, RowStep]:
    table, row = model.coefficientMatrix.toArray(), model.interceptVector.toArray()
    if len(table) > 1:
        return {model.getRawPredictionCol(): (_several_margins, (table, row)),
                model.getProbabilityCol(): (_shares, (table, row)),
                model.getPredictionCol(): (_class, (table, row, _thresholds(model, len(table))))}
    threshold = float(model.getThreshold())
    with np.errstate(divide="ignore"):
        least = float(np.log(np.float64(threshold)) - np.log(np.float64(1 - threshold)))
    return {model.getRawPredictionCol(): (_margins, (table, row)),
            model.getProbabilityCol(): (_two_shares, (table, row)),
            model.getPredictionCol(): (_is_above, (table, row, least))}


def _thresholds(model: Any, classes: int) -> np.ndarray:
    """Return the thresholds by which shares are divided before the largest is chosen."""
    return np.array(model.getThresholds()) if model.isSet("thresholds") else np.ones(classes)


def _margins(x: Any, table: Any, row: Any) -> Any:
    margin = np.dot(table[0], x) + row[0]
    return {"x": np.array([-margin, margin])}


def _two_shares(x: Any, table: Any, row: Any) -> Any:
    share = 1 / (1 + np.exp(np.dot(table[0], x) + row[0]))
    return {"x": np.array([share, 1 - share])}


def _is_above(x: Any, table: Any, row: Any, least: Any) -> Any:
    return {"x": 1.0 if np.dot(table[0], x) + row[0] > least else 0.0}


def _several_margins(x: Any, table: Any, row: Any) -> Any:
    return {"x": table @ x + row}


def _shares(x: Any, table: Any, row: Any) -> Any:
    margins = table @ x + row
    shares = np.exp(margins - margins.max())
    return {"x": shares / shares.sum()}


def _class(x: Any, table: Any, row: Any, thresholds: Any) -> Any:
    margins = table @ x + row
    return {"x": _largest(np.exp(margins - margins.max()), thresholds)}


def _largest(shares: Any, thresholds: Any) -> Any:
    """Return the number of the share that is largest, divided by its threshold; one of 0 by 0 is none."""
    chosen, most = 0.0, -np.inf
    for k in range(len(shares)):
        if shares[k] / thresholds[k] > most:
            chosen, most = np.float64(k), shares[k] / thresholds[k]
    return chosen


def _line(x: Any, coefficients: Any, intercept: Any) -> Any:
    return {"x": np.dot(coefficients, x) + intercept}


def _generalized(x: Any, o: Any, coefficients: Any, intercept: Any, family: Any, link: Any) -> Any:
    return {"x": mean_of(np.dot(coefficients, x) + intercept + o, family, link)}


def _machine_value(x: Any, intercept: Any, linear: Any, factors: Any) -> Any:
    s = x @ factors
    return intercept + np.dot(linear, x) + 0.5 * (np.dot(s, s) - np.dot((factors ** 2).sum(axis=1), x * x))


def _machine(x: Any, intercept: Any, linear: Any, factors: Any) -> Any:
    return {"x": _machine_value(x, intercept, linear, factors)}


def _machine_margins(x: Any, intercept: Any, linear: Any, factors: Any) -> Any:
    value = _machine_value(x, intercept, linear, factors)
    return {"x": np.array([-value, value])}


def _machine_shares(x: Any, intercept: Any, linear: Any, factors: Any) -> Any:
    share = 1 / (1 + np.exp(-_machine_value(x, intercept, linear, factors)))
    return {"x": np.array([1 - share, share])}


def _machine_class(x: Any, intercept: Any, linear: Any, factors: Any, thresholds: Any) -> Any:
    share = 1 / (1 + np.exp(-_machine_value(x, intercept, linear, factors)))
    return {"x": _largest(np.array([1 - share, share]), thresholds)}


def _nearest(x: Any, centers: Any, by_cosine: Any) -> Any:
    if by_cosine:
        return {"x": np.float64(np.argmax(centers @ x / np.sqrt((centers * centers).sum(axis=1))))}
    return {"x": np.float64(np.argmin(((centers - x) ** 2).sum(axis=1)))}
