"""Selection of columns: which columns of a table are read, and which fields of the records they become."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import PlanError, RecordError
from vispark.data.tables.types import ColumnType, advice

#: A DataFrame in errors.
THE_DATAFRAME = "the DataFrame"

Columns = str | Sequence[str] | Mapping[str, str | Sequence[str]]
DTypes = Any


@dataclass(frozen=True)
class ColumnSpec:
    """Column that is read.

    Attributes
    ----------
    name : str
        Its name, with dots.
    path : tuple of str
        The path to it through structs.
    type : ColumnType
        Its type.
    nulls : number or None
        What stands for its nulls; None where a null is an error.
    """

    name: str
    path: tuple[str, ...]
    type: ColumnType
    nulls: float | int | bool | None = None


@dataclass(frozen=True)
class FieldSpec:
    """Field of the records.

    Attributes
    ----------
    name : str
        Empty where the field is the whole record.
    columns : tuple of int
        Which of the columns that are read, by number.
    dtype : str
        Of its array.
    is_stacked : bool
        Whether the columns lie side by side, so that a record's field is a 1-D array.
    """

    name: str
    columns: tuple[int, ...]
    dtype: str
    is_stacked: bool


@dataclass(frozen=True)
class Selection:
    """Selection of a table's columns as the fields of records.

    Attributes
    ----------
    columns : tuple of ColumnSpec
        The columns that are read, in this order.
    fields : tuple of FieldSpec
        The fields of the records; one without a name is the record.
    """

    columns: tuple[ColumnSpec, ...]
    fields: tuple[FieldSpec, ...]

    def alone(self, field: FieldSpec) -> Selection:
        """Return the selection of a field's columns, which are the whole records then."""
        return self.of([replace(field, name="")])

    def of(self, fields: Sequence[FieldSpec]) -> Selection:
        """Return the selection of some of the fields, and of their columns alone."""
        numbers = sorted({number for field in fields for number in field.columns})
        places = {number: place for place, number in enumerate(numbers)}
        return Selection(tuple([self.columns[number] for number in numbers]), tuple([
            replace(field, columns=tuple([places[number] for number in field.columns])) for field in fields]))


def select(schema: Sequence[tuple[str, ColumnType]], columns: Columns | None, dtype: DTypes, nulls: Any,
           table: str, *, is_case_sensitive: bool = True) -> Selection:
    """Return the selection that a user's arguments mean.

    Parameters
    ----------
    schema : sequence of (str, ColumnType)
        The table's columns, in order; a name may be there twice.
    columns : str, sequence of str, dict of str to these, or None
        As of :func:`vispark.from_dataframe`.
    dtype : dtype, dict of str to dtype, or None
        Of the records, or of fields by name.
    nulls : "error", number, or dict of str to these
        What a null is; of columns by name.
    table : str
        What errors call the table.
    is_case_sensitive : bool
        Whether names that differ in case alone mean different columns.

    Raises
    ------
    PlanError
        If the arguments are of another kind, or name what is not there or is there twice.
    RecordError
        If a column holds no numbers.

    Examples
    --------
    >>> number = ColumnType("number", "float64", "double")
    >>> found = select([("x", number), ("k", number)], ["X", "k"], None, {"x": 0.5}, "t", is_case_sensitive=False)
    >>> [field.name for field in found.fields], [spec.nulls for spec in found.columns]
    (['X', 'k'], [0.5, None])
    """
    return _Choice(schema, table, is_case_sensitive=is_case_sensitive).made(columns, dtype, nulls)


def _nulls(nulls: Any) -> float | int | bool | None:
    if isinstance(nulls, str) and nulls == "error":
        return None
    if isinstance(nulls, bool | int | float | np.bool_ | np.integer | np.floating):
        return nulls.item() if isinstance(nulls, np.generic) else nulls
    raise PlanError(f'nulls={nulls!r}; it is "error", or the number that stands for a null, such as float("nan"); a '
                    "dict has these by column")


def dtype_of(dtype: Any, what: str = "dtype") -> str:
    """Return the name of a dtype that a column can be read as.

    Raises
    ------
    PlanError
        If it is none.
    """
    try:
        parsed = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise PlanError(f"{what}={dtype!r} is no dtype, such as \"float32\"") from error
    if parsed.kind not in "biuf" or parsed.itemsize > 8:
        raise PlanError(f"{what}={dtype!r}; columns are read as bool, integers and floats of at most 64 bits")
    return str(parsed.name)


class _Choice:
    """Translation of one call's arguments."""

    def __init__(self, schema: Sequence[tuple[str, ColumnType]], table: str, *, is_case_sensitive: bool):
        self._schema = list(schema)
        self._table = table
        self._is_case_sensitive = is_case_sensitive
        self._twice = {name for name, count in Counter(name for name, _ in schema).items() if count > 1}
        self._leaves = {name: ColumnSpec(name, path, found) for top, kind in schema for name, path, found
                        in kind.leaves(top)}
        #: All names that a column, or a struct, has.
        self._names = [name for name, _ in schema] + list(dict.fromkeys(
            ".".join(spec.path[:depth]) for spec in self._leaves.values() for depth in range(1, len(spec.path) + 1)))
        self._read: dict[str, int] = {}

    def made(self, columns: Columns | None, dtype: DTypes, nulls: Any) -> Selection:
        fields = list(self._named(columns, dtype) if isinstance(columns, Mapping) else self._listed(columns, dtype))
        numbers = self._nulls_by_column(nulls)
        specs = tuple(replace(self._leaves[name], nulls=numbers[name]) for name in self._read)
        self._check_names(fields, is_listed=columns is not None)
        return Selection(specs, tuple(fields))

    def _nulls_by_column(self, nulls: Any) -> dict[str, float | int | bool | None]:
        """Return the number that stands for the nulls of each column; None where they are errors."""
        if not isinstance(nulls, Mapping):
            return dict.fromkeys(self._leaves, _nulls(nulls))
        return dict.fromkeys(self._leaves) | {leaf.name: _nulls(given) for name, given in nulls.items()
                                              for leaf in self._columns_below(name, "nulls")}

    def _listed(self, columns: str | Sequence[str] | None, dtype: DTypes) -> Iterable[FieldSpec]:
        names = [name for name, _ in self._schema] if columns is None else \
            [columns] if isinstance(columns, str) else list(columns)
        if not names:
            raise PlanError(f"{self._table} has no columns" if columns is None else "columns= names no column")
        leaves = self._named_columns(names, whole=columns is None)
        if len(leaves) == 1 and not isinstance(dtype, Mapping):
            yield self._field("", leaves, dtype, stacked=False)
        elif dtype is None or isinstance(dtype, Mapping):
            # As Spark does, a field is called as it was asked for.
            fields = [name + leaf.name[len(self._spelled(name)):] for name in names
                      for leaf in self._columns_below(name)]
            dtypes = self._dtypes(dtype, fields)
            for name, leaf in zip(fields, leaves, strict=True):
                yield self._field(name, [leaf], dtypes.get(name), stacked=False)
        else:
            yield self._field("", leaves, dtype, stacked=True)

    def _named(self, columns: Mapping[str, str | Sequence[str]], dtype: DTypes) -> Iterable[FieldSpec]:
        if not columns or not all(name and isinstance(name, str) for name in columns):
            raise PlanError("columns= as a dict has names of type str, and at least one")
        dtypes = self._dtypes(dtype, list(columns))
        for name, chosen in columns.items():
            leaves = self._named_columns([chosen] if isinstance(chosen, str) else list(chosen))
            if not leaves:
                raise PlanError(f"columns= names no column for the field {name!r}")
            target = dtypes.get(name) if isinstance(dtype, Mapping) else dtype
            yield self._field(name, leaves, target, stacked=not isinstance(chosen, str) or len(leaves) > 1)

    def _dtypes(self, dtype: DTypes, names: list[str]) -> dict[str, Any]:
        """Return the dtypes that a dict gives to fields of some names, by these."""
        dtypes = {self._spelled(name, names): given for name, given in dtype.items()} if isinstance(dtype, Mapping) \
            else {}
        unknown = [name for name in dtypes if name not in names]
        if unknown:
            raise PlanError(f"dtype= has the field {unknown[0]!r}; the fields are {', '.join(map(repr, names))}")
        return dtypes

    def _spelled(self, name: str, names: Sequence[str] | None = None) -> str:
        """Return a name as one of those that there are is written, where it differs in case alone."""
        names = self._names if names is None else names
        if self._is_case_sensitive or name in names or not isinstance(name, str):
            return name
        alike = list(dict.fromkeys(each for each in names if each.lower() == name.lower()))
        if len(alike) > 1:
            raise PlanError(f"{name!r} may be {' or '.join(map(repr, alike))} of {self._table}: write it as it is "
                            "there")
        return alike[0] if alike else name

    def _check_names(self, fields: list[FieldSpec], *, is_listed: bool) -> None:
        twice = [name for name, count in Counter(field.name for field in fields).items() if count > 1]
        if twice:
            raise PlanError(f"columns= names {twice[0]!r} twice; a record has each field once" if is_listed else
                            f"two columns of {self._table} are the field {twice[0]!r}: columns= as a dict gives them "
                            "names of their own, and a list leaves one out")

    def _named_columns(self, names: Sequence[str], *, whole: bool = False) -> list[ColumnSpec]:
        """Return the columns of numbers that names mean; a struct's name means all of its fields."""
        leaves = [leaf for name in names for leaf in self._columns_below(name)]
        odd = [leaf for leaf in leaves if leaf.type.kind == "other"]
        if odd:
            raise self._refused(odd, leaves if whole else [])
        for leaf in leaves:
            self._read.setdefault(leaf.name, len(self._read))
        return leaves

    def _columns_below(self, name: str, argument: str = "columns") -> list[ColumnSpec]:
        if not isinstance(name, str):
            raise PlanError(f"{argument}= takes names of columns, and not {name!r}")
        name = self._spelled(name)
        top = name if any(name == each for each, _ in self._schema) else name.partition(".")[0]
        if top in self._twice:
            raise PlanError(f"{self._table} has {sum(top == each for each, _ in self._schema)} columns called {top!r}; "
                            "give each a name of its own, as with toDF(...) or alias()")
        for column, kind in self._schema:
            if column == name:
                return [self._leaves[leaf] for leaf, _, _ in kind.leaves(name)]
        below = [leaf for key, leaf in self._leaves.items() if key == name or key.startswith(name + ".")]
        if not below:
            names = ", ".join(dict.fromkeys(repr(each) for each, _ in self._schema))
            raise PlanError(f"{self._table} has no column {name!r}; there are {names}")
        return below

    def _refused(self, odd: list[ColumnSpec], among: list[ColumnSpec]) -> RecordError:
        reasons = "; ".join(f"{leaf.name!r} is {leaf.type.text}: {advice(leaf.name, leaf.type)}" for leaf in odd)
        fit = [leaf.name for leaf in among if leaf.type.kind != "other"]
        instead = f"; or take those that hold numbers, columns={fit}" if fit else ""
        spark = "" if self._table == THE_DATAFRAME or "col(" not in reasons else \
            "; of files Spark takes such expressions, and from_dataframe(spark.read...select(...)) what they give"
        return RecordError(f"columns of {self._table} that hold no numbers: {reasons}{instead}{spark}")

    def _field(self, name: str, leaves: list[ColumnSpec], dtype: Any, *, stacked: bool) -> FieldSpec:
        own = np.result_type(*(np.dtype(leaf.type.dtype) for leaf in leaves))
        target = np.dtype(dtype_of(dtype)) if dtype is not None else own
        for leaf in leaves if dtype is not None else ():
            self._check_cast(leaf, target)
        return FieldSpec(name, tuple(self._read[leaf.name] for leaf in leaves), target.name, stacked)

    def _check_cast(self, leaf: ColumnSpec, wanted: np.dtype) -> None:
        own = np.dtype(leaf.type.dtype)
        if (own.kind == "f" and wanted.kind != "f") or (wanted.kind == "b" and own.kind != "b"):
            raise PlanError(f"column {leaf.name!r} is {leaf.type.text}, which {wanted} cannot hold; round, compare or "
                            "cast it in the table, or take a dtype of floats")


def check_ragged(selection: Selection) -> None:
    """Check that columns of arrays and vectors can be rows of several lengths.

    Raises
    ------
    PlanError
        If one is to lie beside other columns, or has vectors of another dtype than float64.
    """
    for field in selection.fields:
        for spec in [selection.columns[number] for number in field.columns]:
            if spec.type.kind != "number" and field.is_stacked:
                raise PlanError(f"ragged=True, and column {spec.name!r} is to lie side by side with others: rows of "
                                "several lengths are fields of their own, as in columns={\"x\": \"" + spec.name + "\"}")
            if spec.type.kind == "vector" and field.dtype != "float64":
                raise PlanError(f"ragged=True, and column {spec.name!r} of vectors is to be {field.dtype}; sparse "
                                "vectors are of float64")


def holds(number: float | int | bool, dtype: np.dtype) -> bool:
    """Return whether a dtype holds a number as it is; floats may round it.

    Examples
    --------
    >>> holds(float("nan"), np.dtype("int32")), holds(-1, np.dtype("int32")), holds(0.1, np.dtype("float32"))
    (False, True, True)
    """
    if dtype.kind == "f":
        return True
    if isinstance(number, float) and (not math.isfinite(number) or number != int(number)):
        return False
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return bool(low <= number <= high)
