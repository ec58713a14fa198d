"""Data of DataFrames on the devices: loaded once, and held as long as one of the DataFrames is there."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from vispark.api.vrdd import VRDD
from vispark.tables.dataframe import from_dataframe

#: The expressions of a load's fields, by field, as text and as columns.
Fields = Mapping[str, "tuple[str, Column]"]

_lock = threading.Lock()
_loads: weakref.WeakKeyDictionary[DataFrame, dict[Any, VRDD]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Part:
    """Rows of a DataFrame that are all of another one, or all but one fold of it.

    Parameters
    ----------
    whole : pyspark.sql.DataFrame
        The DataFrame that is loaded, once for all parts.
    number : (str, Column)
        Field of the fold's number of each row.
    left_out : int
        Number of the fold whose rows are not in the part; of no fold where all are.
    """

    whole: DataFrame
    number: tuple[str, Column]
    left_out: int


_parts: weakref.WeakKeyDictionary[DataFrame, Part] = weakref.WeakKeyDictionary()


def number(name: str) -> tuple[str, Column]:
    """Return a field of a column of numbers, as float64."""
    return f"double({name})", sql.col(f"`{name}`").cast("double")


def plain(name: str) -> tuple[str, Column]:
    """Return a field of a column as it is, such as one of vectors."""
    return name, sql.col(f"`{name}`")


def one() -> tuple[str, Column]:
    """Return a field that is 1.0 in each record, such as the weights of data that has none."""
    return "1.0", sql.lit(1.0)


def share(df: DataFrame, part: Part) -> None:
    """Let loads of a DataFrame that can be masked use those of the whole that it is a part of."""
    with _lock:
        _parts[df] = part


def unshare(df: DataFrame) -> None:
    """Let later loads of a DataFrame be its own again; what was loaded stays."""
    with _lock:
        _parts.pop(df, None)


def load(df: DataFrame, fields: Fields, *, can_mask: bool = False) -> VRDD:
    """Return the rows of a DataFrame on the devices, as dicts of some fields.

    What was loaded before is found again, also for another DataFrame of the same plan, and the same versions of files.
    It is held until the last of these DataFrames is gone, or :func:`unload` is called.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Of a classic session.
    fields : dict of str to (str, Column)
        Field of the records: what it is called among loads, and its column. Columns of vectors become float64 arrays.
    can_mask : bool
        Whether rows that are none of the DataFrame's may come too, with 0 in the field ``w``.
    """
    key = (can_mask, *((field, name) for field, (name, _) in fields.items()))
    with _lock:
        own = _loads.setdefault(df, {})
        if key not in own:
            part = _parts.get(df) if can_mask else None
            own[key] = _masked(part, fields) if part else _same(df, key) or _loaded(df, fields)
        return own[key]


def _masked(part: Part, fields: Fields) -> VRDD:
    """Return the rows of the whole, with weights of 0 for those that are not of a part."""
    numbered = {**fields, "fold": part.number}
    key = tuple((field, name) for field, (name, _) in numbered.items())
    wholes = _loads.setdefault(part.whole, {})
    if key not in wholes:
        wholes[key] = _loaded(part.whole, numbered)
    found: VRDD = wholes[key].vmap(_weigh, float(part.left_out))
    return found


def _weigh(w: Any, fold: Any, left_out: Any) -> Any:
    return {"w": 0.0 if fold == left_out else w}


def unload(df: DataFrame | None = None) -> None:
    """Forget the data on the devices of one DataFrame, or of all; a later fit loads it again.

    Examples
    --------
    >>> unload()
    """
    with _lock:
        if df is None:
            _loads.clear()
        else:
            _loads.pop(df, None)


def _loaded(df: DataFrame, fields: Fields) -> VRDD:
    chosen = df.select(*[column.alias(field) for field, (_, column) in fields.items()])
    rows: Any = from_dataframe(chosen, {field: field for field in fields})
    found: VRDD = rows.cache("GPU")
    return found


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
    found = []
    while leaves.hasNext():
        leaf = leaves.next()
        if leaf.getClass().getSimpleName() == "LogicalRelation" \
                and leaf.relation().getClass().getSimpleName() == "HadoopFsRelation":
            location = leaf.relation().location()
            found.append(location.allFiles().toString() if hasattr(location, "allFiles") else str(id(df)))
    return found
