"""Tasks that compute functions over Arrow columns, some batches at a time, in the worker of their node."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark import TaskContext

from vispark._utils.boundary import cut
from vispark.errors import RecordError, VisparkError
from vispark.plan.ops import LogicalPlan
from vispark.records.rows import Rows
from vispark.runtime.executor.tasks import Receive
from vispark.runtime.identity import Credentials
from vispark.tables.arrow import pa
from vispark.tables.batches import BatchReader
from vispark.tables.selection import Selection, select
from vispark.tables.types import ColumnType, advice, of_arrow
from vispark.udfs.returns import ReturnType

_log = logging.getLogger(__name__)

#: The columns of a batch, one for each argument.
Arguments = Sequence[Any]


@dataclass(frozen=True)
class UdfParameters:
    """Parameters of a function that columns are given for.

    Attributes
    ----------
    function : str
        The function's name.
    names : tuple of str
        The parameters', in the order of the columns.
    columns : tuple of str
        The columns, as errors call them; empty where they are not known.
    """

    function: str
    names: tuple[str, ...]
    columns: tuple[str, ...] = ()

    def selection(self, types: Sequence[Any]) -> Selection:
        """Return the selection of columns of these Arrow types as fields of records.

        Raises
        ------
        RecordError
            If one holds no numbers; names the column, and what to cast.
        """
        kinds = self.checked([of_arrow(each) for each in types])
        schema = list(zip(self.names, kinds, strict=True))
        return select(schema, list(self.names), None, "error", f"the columns of {self.function}")

    def checked(self, kinds: Sequence[ColumnType]) -> Sequence[ColumnType]:
        """Return the types, if all are of numbers.

        Raises
        ------
        RecordError
            As :meth:`selection`.
        """
        for number, kind in enumerate(kinds):
            if kind.kind not in ("number", "array", "vector"):
                shown = self.columns[number] if self.columns else self.names[number]
                hint = "give its fields as columns of their own" if kind.kind == "struct" else advice(shown, kind)
                raise RecordError(f"{self.function} takes numbers, booleans and arrays of these, and the column "
                                  f"{shown!r}, its parameter {self.names[number]}, is {kind.text}: {hint}")
        return kinds


class Computation(Protocol):
    """Computation of a function's results from batches that have no nulls."""

    def __call__(self, batches: list[Any]) -> Any:
        """Return the Arrow array of the results."""


@dataclass(frozen=True)
class TranslatedComputation:
    """Computation by one plan in the worker of this node.

    Nothing of the worker is held between two of them, so that tasks of several functions never wait for each other.
    """

    credentials: Credentials
    chain: LogicalPlan
    parameters: UdfParameters
    returns: ReturnType

    def __call__(self, batches: list[Any]) -> Any:
        reader = BatchReader(self.parameters.selection(batches[0].schema.types), "the batch")
        rows = Rows(array for batch in batches for array in reader.arrays(batch))
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        content, = Receive(self.credentials, self.chain, {}, (), is_columnar=True)(partition, rows)
        return self.returns.column(content)


@dataclass(frozen=True)
class UdfTask:
    """Task of a scalar iterator UDF of Arrow arrays: a null in any argument gives null.

    Attributes
    ----------
    compute : Computation
        Computation of the rows without nulls.
    parameters : UdfParameters
        Of the function.
    returns : ReturnType
        Type of the results.
    nbytes : int
        Bytes of columns up to which batches are joined.
    optional : frozenset of str
        Parameters that take nulls, as None.
    """

    compute: Computation
    parameters: UdfParameters
    returns: ReturnType
    nbytes: int
    optional: frozenset[str] = frozenset()

    def __call__(self, given: Iterable[Any]) -> Iterator[Any]:
        for joined in self.joined(columns if isinstance(columns, tuple) else (columns,) for columns in given):
            try:
                found = self.results(joined)
            except VisparkError as error:       # Spark shows the trace of whatever a UDF raises
                _log.info("a UDF failed", exc_info=error)
                raise cut(error) from None
            yield found

    def joined(self, given: Iterable[Arguments]) -> Iterator[list[Arguments]]:
        """Yield batches of about :attr:`nbytes` together."""
        waiting: list[Arguments] = []
        size = 0
        for columns in given:
            waiting.append(columns)
            size += sum(column.nbytes for column in columns)
            if size >= self.nbytes:
                yield waiting
                waiting, size = [], 0
        if waiting:
            yield waiting

    def results(self, joined: list[Arguments]) -> Any:
        """Return the Arrow array of the results for some batches."""
        batches = [pa.RecordBatch.from_arrays(list(columns), list(self.parameters.names)) for columns in joined]
        valid = [self._valid(batch) for batch in batches]
        kept = [batch if mask is None else batch.filter(mask) for batch, mask in zip(batches, valid, strict=True)]
        kept = [batch for batch in kept if batch.num_rows]
        found = self.compute(kept) if kept else pa.nulls(0, self.returns.arrow)
        if not any(mask is not None for mask in valid):
            return found
        rows = pa.concat_arrays([pa.repeat(True, batch.num_rows) if mask is None else mask
                                 for batch, mask in zip(batches, valid, strict=True)])
        numbers = pa.compute.subtract(pa.compute.cumulative_sum(rows.cast(pa.int64())), 1)
        return found.take(pa.compute.if_else(rows, numbers, None))

    def _valid(self, batch: Any) -> Any:
        """Return the mask of the rows without a null; None if no row has one."""
        masks = [column.is_valid() for name, column in zip(batch.schema.names, batch.columns, strict=True)
                 if column.null_count and name not in self.optional]
        return functools.reduce(pa.compute.and_, masks) if masks else None
