"""Tasks that compute functions over Arrow columns, some batches at a time, in the worker of their node."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pyspark import TaskContext

from vispark._utils.boundary import cut
from vispark.api.udfs.returns import ReturnType
from vispark.data.records.rows import Rows
from vispark.data.tables.arrow import pa
from vispark.data.tables.batches import BatchReader
from vispark.data.tables.selection import Selection, select
from vispark.data.tables.types import ColumnType, advice, of_arrow
from vispark.errors import RecordError, VisparkError
from vispark.plan.ops import LogicalPlan
from vispark.runtime.executor.tasks import Receive
from vispark.runtime.identity import Credentials

_log = logging.getLogger(__name__)

#: The columns of a batch, one for each argument.
BatchColumns = Sequence[Any]

#: The part of :attr:`UdfTask.nbytes` that the first joined batch of a task has, and its least bytes: fewer would cost
#: more as a plan than they gain by being computed while others are read.
_FIRST, _LEAST_BYTES = 16, 1 << 20

#: Held while a function of this process is computed, as all have one connection to the worker.
_COMPUTING = threading.Lock()

#: What to do about a null inside an array.
_REMEDY = "leave such rows out, or fill them, as in transform(column, lambda x: coalesce(x, lit(0.0)))"

_Given = TypeVar("_Given")


def _nbytes(column: Any) -> int:
    """Return the bytes of a column's numbers, without asking for its buffers where its type says them."""
    kind = column.type
    return len(column) * (kind.bit_width // 8) if pa.types.is_floating(kind) or pa.types.is_integer(kind) else \
        int(column.nbytes)


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
                name = self.names[number]
                shown = self.columns[number] if self.columns else name
                hint = "give its fields as columns of their own" if kind.kind == "struct" else advice(shown, kind)
                if not self.columns and kind.text.startswith("decimal"):
                    hint = "cast it, as in CAST(... AS DOUBLE); a number of SQL is a double with D behind it, as 3.9D"
                origin = f"the column {shown!r}, its parameter {name}," if self.columns else \
                    f"what SQL gives for its parameter {name}"
                raise RecordError(f"{self.function} takes numbers, booleans and arrays of these, and {origin} is "
                                  f"{kind.text}: {hint}")
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
        # No two columns become one array, so that none takes the place of another while all batches are there.
        reader = BatchReader(self.parameters.selection(batches[0].schema.types),
                             f"a batch for {self.parameters.function}", reuses=True, remedy=_REMEDY)
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

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        arguments = (columns if isinstance(columns, tuple) else (columns,) for columns in batches)
        try:
            for _, column in self.computed(arguments, lambda columns: columns):
                yield column
        except VisparkError as error:       # Spark shows the trace of whatever a UDF raises
            _log.info("a UDF failed", exc_info=error)
            raise cut(error) from None

    def computed(self, batches: Iterable[_Given],
                 arguments: Callable[[_Given], BatchColumns]) -> Iterator[tuple[list[_Given], Any]]:
        """Yield the given batches joined, each time with the Arrow array of its results; while one is computed, the
        next is read.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="udf") as pool:
            before: tuple[list[_Given], Future[Any]] | None = None
            for joined in self.joined(batches, arguments):
                following = joined, pool.submit(self._results_alone, [arguments(each) for each in joined])
                if before is not None:
                    yield before[0], before[1].result()
                before = following
            if before is not None:
                yield before[0], before[1].result()

    def joined(self, batches: Iterable[_Given], arguments: Callable[[_Given], BatchColumns]) -> Iterator[list[_Given]]:
        """Yield batches of about :attr:`nbytes` together; of fewer at first, so that there is something to compute
        while more are read.
        """
        waiting: list[_Given] = []
        size, most = 0, max(self.nbytes // _FIRST, min(self.nbytes, _LEAST_BYTES))
        for batch in batches:
            waiting.append(batch)
            size += sum(map(_nbytes, arguments(batch)))
            if size >= most:
                yield waiting
                waiting, size, most = [], 0, min(2 * most, self.nbytes)
        if waiting:
            yield waiting

    def _results_alone(self, joined: list[BatchColumns]) -> Any:
        """Return :meth:`results`, while no other function of this process computes."""
        with _COMPUTING:
            return self.results(joined)

    def results(self, joined: list[BatchColumns]) -> Any:
        """Return the Arrow array of the results for some batches."""
        batches = [pa.RecordBatch.from_arrays(list(columns), list(self.parameters.names)) for columns in joined]
        valid = [self._valid(batch) for batch in batches]
        filled = [batch if mask is None else batch.filter(mask) for batch, mask in zip(batches, valid, strict=True)]
        filled = [batch for batch in filled if batch.num_rows]
        results = self.compute(filled) if filled else pa.nulls(0, self.returns.arrow)
        if not any(mask is not None for mask in valid):
            return results
        rows = pa.concat_arrays([pa.repeat(True, batch.num_rows) if mask is None else mask
                                 for batch, mask in zip(batches, valid, strict=True)])
        numbers = pa.compute.subtract(pa.compute.cumulative_sum(rows.cast(pa.int64())), 1)
        return results.take(pa.compute.if_else(rows, numbers, None))

    def _valid(self, batch: Any) -> Any:
        """Return the mask of the rows without a null; None if no row has one."""
        masks = [column.is_valid() for name, column in zip(batch.schema.names, batch.columns, strict=True)
                 if column.null_count and name not in self.optional]
        return functools.reduce(pa.compute.and_, masks) if masks else None
