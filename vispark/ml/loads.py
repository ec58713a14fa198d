"""Data of DataFrames on the devices: loaded once, and held as long as one of the DataFrames is there."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from vispark.api.vrdd import VRDD
from vispark.data.tables.dataframe import from_dataframe
from vispark.data.tables.types import of_spark
from vispark.runtime.driver.session import Session

#: The expression of a field, as text and as a column, or as columns that are put side by side.
FieldExpression: TypeAlias = "tuple[str, Column | tuple[Column, ...]]"

#: The expressions of a load's fields, by field.
Fields: TypeAlias = "Mapping[str, FieldExpression]"

#: Numbers that float32 holds as they are.
_NARROW = ("bool", "int8", "int16", "float32")

_lock = threading.Lock()
_loads: weakref.WeakKeyDictionary[DataFrame, dict[Any, VRDD]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Part:
    """Rows of a DataFrame that are all of another one, all but one fold of it, or one fold.

    Parameters
    ----------
    whole : pyspark.sql.DataFrame
        The DataFrame that is loaded, once for all parts.
    number : (str, Column)
        Field of the fold's number of each row.
    fold : int
        Number of the fold whose rows are not in the part, or are all of it; of no fold where all rows are.
    is_fold : bool
        Whether the part is the fold.
    weight : (str, Column) or None
        Field of the weights of evaluations, which is loaded beside those of fits; None where they are 1.
    """

    whole: DataFrame
    number: tuple[str, Column]
    fold: int
    is_fold: bool = False
    weight: tuple[str, Column] | None = None

    def weighed(self, points: VRDD) -> VRDD:
        """Return records of the whole, with weights of -0.0 for those that are not of the part."""
        weighted: VRDD = points.vmap(_weigh, float(self.fold), self.is_fold)
        return weighted

    @property
    def weighs_by(self) -> str | None:
        """The name of the weights of evaluations; None where they are 1."""
        return None if self.weight is None else self.weight[0]

    def weighed_by(self, points: VRDD, name: str) -> VRDD:
        """Return the records with another weight than the one that they were loaded with: the column that an evaluator
        names, or 1.
        """
        function: Any = _weigh_by if name == self.weighs_by else _weigh_alone
        weighted: VRDD = points.vmap(function, float(self.fold), self.is_fold)
        return weighted


_parts: weakref.WeakKeyDictionary[DataFrame, Part] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Vectors:
    """Column of vectors, or of numbers, that the workers compute of a field that is loaded.

    Parameters
    ----------
    origin : (str, Column or tuple of Columns)
        The field.
    steps : tuple of (function, tuple)
        Row functions one after another, with their arguments; each takes a field ``x``, and gives a dict of a new one.
    """

    origin: FieldExpression
    steps: tuple[tuple[Any, tuple[Any, ...]], ...] = ()

    def made(self, points: VRDD, done: int = 0) -> VRDD:
        """Return records whose field ``x`` is the column: compute its steps behind the first ``done``."""
        for function, arguments in self.steps[done:]:
            points = points.vmap(function, *arguments)
        return points


@dataclass(frozen=True)
class View:
    """DataFrame with the rows of another one, and columns of vectors that are computed of its load.

    Parameters
    ----------
    source : pyspark.sql.DataFrame
        The DataFrame that is loaded, once for all views of it with these fields.
    wide : dict of str to (str, Column)
        The fields of that load, which are those of several fits.
    columns : dict of str to Vectors
        The columns of vectors by name.
    """

    source: DataFrame
    wide: Fields
    columns: Mapping[str, Vectors]

    def records(self, fields: Fields, *, can_mask: bool) -> VRDD | None:
        """Return the records of some fields, or None where they are not among those that are loaded.

        A field ``p`` is a prediction of the features ``x``.
        """
        fields_left = dict(fields)
        prediction = self.columns.get(fields_left.pop("p")[0]) if "p" in fields_left else None
        if prediction is None and "p" in fields:
            return None
        vectors = self.columns.get(fields_left["x"][0], Vectors(fields_left["x"])) if "x" in fields_left else prediction
        if vectors is not None:
            fields_left["x"] = vectors.origin
        weight = fields_left.pop("w")[0] if "w" in fields_left else None
        part = _parts.get(self.source) if can_mask else None
        known = None, one()[0], self.wide["w"][0] if "w" in self.wide else None, part and part.weighs_by
        if weight not in known or fits_into(fields_left, self.wide) is None:
            return None
        points = load(self.source, self.wide, can_mask=can_mask, can_round=True)
        if weight is not None and weight != self.wide["w"][0]:
            points = part.weighed_by(points, weight) if part else points.vmap(_weigh_equally)
        if prediction is None:
            return vectors.made(points) if vectors else points
        return prediction.made(points) if "x" not in fields else _with_prediction(points, vectors, prediction)


def _with_prediction(points: VRDD, features: Any, prediction: Vectors) -> VRDD | None:
    """Return records with features ``x`` and a prediction ``p`` that is computed of them; None of others."""
    done = len(features.steps)
    if features.origin[0] != prediction.origin[0] or any(
            ours is not theirs for ours, theirs in zip(features.steps, prediction.steps[:done], strict=True)):
        return None
    return prediction.made(features.made(points).vmap(_keep), done).vmap(_put_prediction)


_views: weakref.WeakKeyDictionary[DataFrame, View] = weakref.WeakKeyDictionary()


def number(name: str) -> tuple[str, Column]:
    """Return a field of a column of numbers, as float64."""
    return f"double({name})", sql.col(f"`{name}`").cast("double")


def plain(name: str) -> tuple[str, Column]:
    """Return a field of a column as it is, such as one of vectors."""
    return name, sql.col(f"`{name}`")


def one() -> tuple[str, Column]:
    """Return a field that is 1.0 in each record, such as the weights of data that has none."""
    return "1.0", sql.lit(1.0)


def row_number() -> tuple[str, Column]:
    """Return a field of numbers that no two rows have in common."""
    return "monotonically_increasing_id()", sql.monotonically_increasing_id()


def fits_into(fields: Fields, wide: Fields) -> Fields | None:
    """Return the fields of a load for several fits with those of one more, or None where they do not go together.

    Weights of 1 need no field, as each fit has its own.
    """
    merged = dict(wide)
    for field, columns in fields.items():
        before = merged.setdefault(field, columns)
        if before[0] != columns[0]:
            if field != "w" or one()[0] not in (before[0], columns[0]):
                return None
            merged[field] = before if columns[0] == one()[0] else columns
    return merged


def share_view(df: DataFrame, view: View) -> None:
    """Let loads of a DataFrame be views of another one's, where its fields are there."""
    with _lock:
        _views[df] = view


def share(df: DataFrame, part: Part) -> None:
    """Let loads of a DataFrame that can be masked use those of the whole that it is a part of."""
    with _lock:
        _parts[df] = part


def unshare(df: DataFrame) -> None:
    """Let later loads of a DataFrame be its own again; what was loaded stays."""
    with _lock:
        _parts.pop(df, None)


def load(df: DataFrame, fields: Fields, *, can_mask: bool = False, can_round: bool = False) -> VRDD:
    """Return the rows of a DataFrame on the devices, as dicts of some fields.

    What was loaded before is found again, also for another DataFrame of the same plan, and the same versions of files.
    It is held until the last of these DataFrames is gone, or :func:`unload` is called: on the devices as far as there
    is room, and in host memory beyond.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Of a classic session.
    fields : dict of str to (str, Column)
        Field of the records: what it is called among loads, and its column. The field ``x`` is float64, whatever it
        is held in: in float32 where all its columns are of numbers that float32 holds as they are.
    can_mask : bool
        Whether rows that are none of the DataFrame's may come too, with 0 in the field ``w``.
    can_round : bool
        Whether arrays ``x`` may be rounded to what the option ``features`` says.
    """
    if view := _views.get(df):
        seen = view.records(fields, can_mask=can_mask)
        if seen is not None:
            return seen
    with _lock:
        own = _loads.setdefault(df, {})
        part = _parts.get(df) if can_mask else None
        dtype = Session.of(df.sparkSession.sparkContext).options.features if can_round else "float64"
        key = (part is not None, dtype, *((field, name) for field, (name, _) in fields.items()))
        if key not in own:
            own[key] = _masked(part, fields, dtype) if part else _same(df, key) or _loaded(df, fields, dtype)
        return own[key]


def _masked(part: Part, fields: Fields, dtype: str) -> VRDD:
    """Return the rows of the whole, with weights of 0 for those that are not of a part."""
    numbered: dict[str, FieldExpression] = {**fields, "fold": part.number}
    if part.weight is not None:
        numbered["v"] = part.weight
    key = (dtype, *((field, name) for field, (name, _) in numbered.items()))
    wholes = _loads.setdefault(part.whole, {})
    if key not in wholes:
        wholes[key] = _loaded(part.whole, numbered, dtype)
    return part.weighed(wholes[key])


def _weigh(w: Any, fold: Any, number: Any, is_fold: Any) -> Any:
    return {"w": w if (fold == number) == is_fold else -0.0}


def _weigh_alone(fold: Any, number: Any, is_fold: Any) -> Any:
    return {"w": 1.0 if (fold == number) == is_fold else -0.0}


def _weigh_by(v: Any, fold: Any, number: Any, is_fold: Any) -> Any:
    return {"w": v if (fold == number) == is_fold else -0.0}


def _keep(x: Any) -> Any:
    return {"kept": x}


def _put_prediction(x: Any, kept: Any) -> Any:
    return {"p": x, "x": kept}


def _weigh_equally(w: Any) -> Any:
    return {"w": 1.0}


def widen(x: Any) -> Any:
    """Return a record's features in float64."""
    return {"x": x.astype(np.float64)}


def unload(df: DataFrame | None = None) -> None:
    """Forget the data on the devices of one DataFrame, or of all; a later fit loads it again.

    Parameters
    ----------
    df : pyspark.sql.DataFrame, optional
        The one that was fitted; left out, all.

    Examples
    --------
    >>> unload()
    """
    with _lock:
        if df is None:
            _loads.clear()
        else:
            _loads.pop(df, None)


def _loaded(df: DataFrame, fields: Fields, dtype: str) -> VRDD:
    columns_of = {field: column if isinstance(column, tuple) else (column,) for field, (_, column) in fields.items()}
    # Errors name what a field is of; two fields may be of one column.
    names_of = {field: [f"{field}{place}: {fields[field][0]}".replace(".", "_") for place in range(len(columns))]
                for field, columns in columns_of.items()}
    chosen = df.select(*[column.alias(name) for field, columns in columns_of.items()
                         for name, column in zip(names_of[field], columns, strict=True)])
    held = _held(chosen, names_of["x"], dtype) if "x" in columns_of else None
    rows: Any = from_dataframe(chosen, {
        field: names if isinstance(fields[field][1], tuple) else names[0] for field, names in names_of.items()},
        {"x": held} if held else None)
    points: VRDD = rows.persist("GPU_AND_HOST")
    return points.vmap(widen) if held == "float32" else points


def _held(chosen: DataFrame, names: list[str], dtype: str) -> str | None:
    """Return the type in which some columns are held side by side; None where they are no numbers."""
    types = [of_spark(chosen.schema[name].dataType) for name in names]
    if not all(each.dtype for each in types):
        return None
    is_narrow = all(each.dtype in _NARROW for each in types)
    is_of_arrays = len(names) > 1 or types[0].kind != "number"
    return "float32" if is_narrow or (is_of_arrays and dtype == "float32") else "float64"


def _same(df: DataFrame, key: Any) -> VRDD | None:
    """Return the load of another DataFrame of the same plan."""
    for other, theirs in list(_loads.items()):
        if key in theirs and other is not df and other.sparkSession is df.sparkSession \
                and df.semanticHash() == other.semanticHash() and df.sameSemantics(other) \
                and _files(df) == _files(other):
            return theirs[key]
    return None


def _files(df: DataFrame) -> list[str]:
    """Return the listings of a plan's files, with their sizes and times; plans alone say no more than their paths."""
    leaves = df._jdf.queryExecution().optimizedPlan().collectLeaves().iterator()
    files = []
    while leaves.hasNext():
        leaf = leaves.next()
        if leaf.getClass().getSimpleName() == "LogicalRelation" \
                and leaf.relation().getClass().getSimpleName() == "HadoopFsRelation":
            location = leaf.relation().location()
            files.append(location.allFiles().toString() if hasattr(location, "allFiles") else str(id(df)))
    return files
