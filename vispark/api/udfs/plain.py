"""Functions over columns that run in Python, row by row, where they cannot be translated."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vispark.api.udfs.returns import ReturnType
from vispark.api.udfs.task import Computation
from vispark.data.tables.arrow import pa
from vispark.errors import RecordError
from vispark.translate.ir.errors import TranslationError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlainComputation:
    """Computation by calls of a function with Python's values, of arrays with NumPy's."""

    function: Callable[..., Any]
    returns: ReturnType

    def __call__(self, batches: list[Any]) -> Any:
        values = [_plain(self.function(**dict(zip(batch.schema.names, row, strict=True))))
                  for batch in batches for row in zip(*map(_values, batch.columns), strict=True)]
        try:
            return pa.array(values, self.returns.arrow)
        except (pa.ArrowException, TypeError) as error:
            raise RecordError(f"{self.returns.name} gives values that are no {self.returns.kind.simpleString()}, which "
                              f"it is declared to return: {error}") from error


def _values(column: Any) -> Iterable[Any]:
    """Return the values of a column that a function is called with."""
    values: list[Any] = column.to_pylist()
    is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    if is_list and (pa.types.is_integer(column.type.value_type) or pa.types.is_floating(column.type.value_type)):
        dtype = column.type.value_type.to_pandas_dtype()
        return [np.array(value, dtype) if None not in value else value for value in values]
    return values


def _plain(value: Any) -> Any:
    """Return a result in Python's own types."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


@dataclass(frozen=True)
class FallbackComputation:
    """Computation that calls the function where its translation refuses the columns' types."""

    translated: Computation
    plain: PlainComputation

    def __call__(self, batches: list[Any]) -> Any:
        try:
            return self.translated(batches)
        except (TranslationError, RecordError) as error:
            log.warning("%s runs in Python, row by row: %s", self.plain.returns.name, error)
            return self.plain(batches)
