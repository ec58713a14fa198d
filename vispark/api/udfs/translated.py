"""Functions over columns that are translated: ``vispark.udf``."""

from __future__ import annotations

import functools
import inspect
import typing
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from pyspark import SparkContext
from pyspark.rdd import PythonEvalType
from pyspark.sql import Column
from pyspark.sql import types as spark
from pyspark.sql.types import _parse_datatype_string
from pyspark.sql.udf import UserDefinedFunction

from vispark._utils.boundary import brief, brief_errors
from vispark.api.rdds.explain import content_of
from vispark.api.udfs.plain import FallbackComputation, PlainComputation
from vispark.api.udfs.returns import ReturnType, check_type, ddl
from vispark.api.udfs.task import TranslatedComputation, UdfParameters, UdfTask
from vispark.data.records.partition_schema import FetchedPartition
from vispark.data.tables.arrow import require
from vispark.data.tables.output import columns_of
from vispark.data.tables.types import of_spark
from vispark.errors import FallbackWarning, PlanError, SparkConnectError
from vispark.options import Options
from vispark.plan import ops
from vispark.plan.lower.lowering import Lowering
from vispark.plan.lower.stages import FETCH
from vispark.plan.map_call import MapSpec, record_map
from vispark.runtime.driver.executor_gpus import refresh
from vispark.runtime.driver.session import Session
from vispark.translate.frontend import index_faults
from vispark.translate.ir.errors import TranslationError
from vispark.translate.ir.nodes import Definition
from vispark.translate.ir.source_text import at_definition

#: PySpark's number of UDFs of iterators of Arrow arrays, which 4.1 began; None where there are none.
ARROW_ITERATOR: int | None = getattr(PythonEvalType, "SQL_SCALAR_ARROW_ITER_UDF", None)


@brief_errors
class ColumnFunction:
    """Function over columns, computed by the workers' devices. Made by :func:`vispark.udf`.

    Called with columns, or their names, it gives a column. ``spark.udf.register("name", f)`` makes it known to SQL.

    Attributes
    ----------
    deterministic : bool
        Always true, so that Spark may compute it again, or of rows that a filter leaves out later.
    evalType : int
        PySpark's number of its kind of UDF.
    py_func : callable
        Function that it was made of, which ``vmap`` and other functions take it for.
    """

    deterministic = True

    def __init__(self, function: Callable[..., Any], returns: str | spark.DataType, *, fallback: bool = False):
        if not callable(function):
            raise PlanError(f"vispark.udf is of a function, and not of a {type(function).__name__}")
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        functools.update_wrapper(self, function)
        if self.__name__ == "<lambda>":
            self.__name__ = "lambda"
        self._returns = returns
        self.py_func, self._fallback, self._reason = function, fallback, ""
        self._spec: MapSpec | None = None
        try:
            self._spec = _translated(function)
            self._names, self._needed = _parameters(self._spec)
        except TranslationError as error:
            if not fallback:
                raise
            self._names, self._needed = _signature(function)
            self._warn_of_python(error)
        if SparkContext._active_spark_context is not None or isinstance(returns, spark.DataType):
            self._check()

    @property
    def evalType(self) -> int:
        if ARROW_ITERATOR is None:
            raise PlanError("vispark.udf in select, withColumn and SQL needs UDFs of Arrow arrays, which PySpark has "
                            "from 4.1 on; here, vispark.with_column(df, \"name\", f, *columns) adds the column")
        return ARROW_ITERATOR

    @property
    def returnType(self) -> spark.DataType:
        """Type of the column."""
        return self.returns().kind

    @property
    def func(self) -> UdfTask:
        """Function of Arrow arrays that Spark's tasks call."""
        return self.task(SparkContext._active_spark_context, self._names)

    def asNondeterministic(self) -> ColumnFunction:
        """Raise an error: a translated function depends on its columns alone.

        Raises
        ------
        PlanError
            Always.
        """
        raise PlanError(f"{self.__name__} depends on its columns alone; take random numbers as a column, as of "
                        "pyspark.sql.functions.rand()")

    def __repr__(self) -> str:
        return f"<vispark.udf {self.__name__}({', '.join(self._names)}) of {text_of(self._returns)}>"

    def __call__(self, *columns: Column | str, **named: Column | str) -> Column:
        return self._column(columns, named)

    def explain(self, columns: str | None = None) -> None:
        """Print what the function becomes: :meth:`explanation`."""
        print(self.explanation(columns))

    def explanation(self, columns: str | None = None) -> str:
        """Return a description of what the function becomes.

        Parameters
        ----------
        columns : str, optional
            Names and types of the columns for its parameters, as in ``"x double, k int"``: the text has the kernel for
            them, and the type that it gives.

        Raises
        ------
        TranslationError
            If the function cannot be translated for such columns; at its line.
        PlanError
            If these are not the parameters' names, or arrays, of which a schema does not say how long they are.

        Examples
        --------
        >>> print(udf("double")(lambda x, k: k * x).explanation())
        vispark.udf lambda(x, k) of double
        translated: one plan for each 64 MiB of joined batches, in the worker of the task's node
        a null in any argument gives null
        """
        lines = [f"vispark.udf {self.__name__}({', '.join(self._names)}) of {text_of(self._returns)}"]
        if self._spec is None:
            return "\n".join([*lines, f"not translated, runs in Python, row by row: {self._reason}"])
        context = SparkContext._active_spark_context
        nbytes = Session.of(context).options.udfBytes if context else Options.read([]).udfBytes
        size = f"{nbytes >> 20} MiB" if nbytes >> 20 else f"{nbytes} bytes"
        lines += [f"translated: one plan for each {size} of joined batches, in the worker of the task's node",
                  "a null in any argument gives null"]
        if columns is not None:
            lines += [f"== Kernel for {columns} ==", *self._kernel(self._spec, columns)]
        return "\n".join(lines)

    def _kernel(self, spec: MapSpec, columns: str) -> tuple[str, str]:
        """Return the type of the results for such columns, and the source of the kernel."""
        _context()
        parsed: Any = _parse_datatype_string(columns)
        kinds = {field.name: of_spark(field.dataType) for field in parsed.fields}
        self.given((), {name: name for name in kinds})
        if any(kind.kind != "number" for kind in kinds.values()):
            raise PlanError(f"columns={columns!r}; a kernel is shown for columns of numbers")
        schema: Any = {name: ((), kind.dtype) for name, kind in kinds.items()}
        content = content_of(schema if len(schema) > 1 else next(iter(schema.values())))
        lowering = Lowering((ops.PlanNode(ops.Send()), ops.PlanNode(ops.Map(spec))), None, FETCH)
        assert content is not None
        lowering.add(0, content)
        lowering.finish()
        result = lowering.results()[0]
        blocks = [{each.name: np.zeros(each.shape, each.dtype) for each in signature.fields}
                  for signature in result.signatures]
        module, = lowering.modules.modules()
        return f"gives {ddl(columns_of(FetchedPartition(result, [], blocks)))}", module.source

    def returns(self) -> ReturnType:
        """Return the type of the results, which is read when Spark runs."""
        kind = self._returns
        if isinstance(kind, str):
            _context()
            kind = _parse_datatype_string(kind)
        return ReturnType(self.__name__, kind)

    def given(self, columns: tuple[Column | str, ...], named: dict[str, Column | str]) -> dict[str, Column | str]:
        """Return the columns by the parameters that they are for.

        Raises
        ------
        PlanError
            If there are too many, too few, or some for parameters that are not there.
        """
        call_text = f"{self.__name__}({', '.join(self._names)})"
        if len(columns) > len(self._names):
            raise PlanError(f"{call_text} is given {len(columns)} columns")
        by_name = dict(zip(self._names, columns, strict=False))
        for name, column in named.items():
            if name not in self._names or name in by_name:
                raise PlanError(f"{call_text} has no parameter {name}" if name not in by_name else
                                f"{call_text} is given {name} twice")
            by_name[name] = column
        missing = [name for name in self._needed if name not in by_name]
        if missing or not by_name:
            raise PlanError(f"{call_text} is given no column for {', '.join(missing or self._names)}")
        for name, column in by_name.items():
            if not isinstance(column, str | Column):
                raise PlanError(f"{call_text} takes columns, or their names, and for {name} was given a "
                                f"{type(column).__name__}; a number is lit({column!r})")
        return by_name

    def task(self, context: SparkContext | None, names: tuple[str, ...], columns: tuple[str, ...] = ()) -> UdfTask:
        """Return the task that computes it from columns for these parameters."""
        require("vispark.udf")
        session = Session.of(context or _context())
        refresh(session.credentials.gpus, session.context, None)
        parameters, returns = UdfParameters(self.__name__, names, columns), self._check()
        plain = PlainComputation(self.py_func, returns)
        if self._spec is None:
            return UdfTask(plain, parameters, returns, session.options.udfBytes, optional_parameters(self.py_func))
        chain = ops.verify((ops.PlanNode(ops.Send()), ops.PlanNode(ops.Map(self._spec))))
        translated = TranslatedComputation(session.credentials, chain, parameters, returns)
        return UdfTask(FallbackComputation(translated, plain) if self._fallback else translated, parameters, returns,
                       session.options.udfBytes)

    def check_columns(self, parameters: UdfParameters, kinds: list[spark.DataType]) -> None:
        """Check that columns of these types can be computed with.

        Raises
        ------
        RecordError
            If one holds no numbers.
        """
        if not self._fallback:
            parameters.checked([of_spark(kind) for kind in kinds])

    # -- its making ---------------------------------------------------------------------------------------------------

    def _warn_of_python(self, error: PlanError, definition: Definition | None = None) -> None:
        """Warn, at the function's line, that it runs in Python."""
        self._reason = error.message.partition("\n")[0]
        file, line = (error.file, error.line) if isinstance(error, TranslationError) else ("", 0)
        if definition is not None:
            file, line = definition.text.file, definition.at.line
        warnings.warn_explicit(f"{self.__name__} is not translated, and runs in Python, row by row: {self._reason}",
                               FallbackWarning, file or "<unknown>", line or 1)

    def _check(self) -> ReturnType:
        returns = self.returns()
        if self._spec is None:
            return returns
        try:
            check_type(returns.kind, self.__name__)
        except PlanError as error:
            if not self._fallback:
                raise
            self._warn_of_python(error, self._spec.function.definition)
            self._spec = None
        return returns

    def _column(self, columns: tuple[Column | str, ...], named: dict[str, Column | str]) -> Column:
        by_name = self.given(columns, named)
        kind = self.evalType
        _context()
        task = self.task(None, tuple(by_name), tuple(map(text_of, by_name.values())))
        function = UserDefinedFunction(task, returnType=self.returns().kind, name=self.__name__, evalType=kind)
        return function(*by_name.values())


def _translated(function: Callable[..., Any]) -> MapSpec:
    """Return the recorded call of a function.

    Raises
    ------
    TranslationError
        If it has what the language lacks, or a parameter that takes None; at its line.
    """
    spec = record_map(function, ())
    definition = spec.function.definition
    for name in sorted(optional_parameters(function)):
        raise at_definition(definition, f"the parameter {name} takes None; a null in any argument gives null, and the "
                                        "function is not asked. Take coalesce(column, lit(number)) as the column, and "
                                        f"leave the None of {name} out")
    label = f"udf {spec.function.name}"
    index_faults.remember(label, definition)
    return replace(spec, label=label)


def optional_parameters(function: Callable[..., Any]) -> frozenset[str]:
    """Return the parameters whose annotations have None among the types.

    Examples
    --------
    >>> def f(x: float | None, y: "float | None", z: float): ...
    >>> sorted(optional_parameters(f))
    ['x', 'y']
    """
    annotations = dict(getattr(function, "__annotations__", {}))
    annotations.pop("return", None)
    return frozenset(name for name, kind in annotations.items()
                     if (("None" in kind or "Optional" in kind) if isinstance(kind, str) else
                         type(None) in typing.get_args(kind)))


def _signature(function: Callable[..., Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names, as :func:`_parameters` does, of a function that is not translated."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError as error:
        raise PlanError(f"{error}; write a function with a parameter for each column") from error
    if not parameters or any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD, each.POSITIONAL_ONLY)
                             for each in parameters):
        raise PlanError(f"{function.__name__} needs a parameter of its own for each column, with a name")
    return tuple([each.name for each in parameters]), tuple([each.name for each in parameters
                                                             if each.default is each.empty])


def _parameters(spec: MapSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of a function's parameters, and those of them that have no default."""
    parameters = spec.function.definition.parameters
    if spec.function.definition.halo is not None:
        raise PlanError(f"{spec.function.name} is a stencil, which is of a grid's cells, and not of columns")
    if not parameters or any(each.many for each in parameters):
        raise PlanError(f"{spec.function.name} needs a parameter of its own for each column")
    return tuple([each.name for each in parameters]), tuple([each.name for each in parameters if each.default is None])


def _context() -> SparkContext:
    """Return the running SparkContext.

    Raises
    ------
    PlanError, SparkConnectError
        If there is none.
    """
    context = SparkContext._active_spark_context
    if context is None:
        raise PlanError("no SparkSession runs; make one first, by SparkSession.builder.getOrCreate()")
    return context


def text_of(column: Any) -> str:
    """Return a column, or a type, as a user would write it."""
    if isinstance(column, spark.DataType):
        return column.simpleString()
    if isinstance(column, str):
        return column
    if not hasattr(column, "_jc"):
        raise SparkConnectError("vispark.udf needs a classic session; a Spark Connect session has no workers")
    return str(column._jc.toString())


@brief
def udf(returnType: str | spark.DataType, *, fallback: bool = False) -> Callable[[Callable[..., Any]], ColumnFunction]:
    """Make a decorator that translates a function for columns of DataFrames, as :meth:`VRDD.vmap` does for records.

    The function is of one row; its parameters are columns. Spark's tasks join batches of rows, up to
    ``spark.vispark.udfBytes``, and the worker of their node computes each joined batch in one plan, on its devices.
    The function is never called.

    Parameters
    ----------
    returnType : str or pyspark.sql.types.DataType
        Type of the results: a number or ``boolean``, ``array<...>`` of these for 1-D results, ``struct<...>`` for dicts
        (by name) and tuples (by place).
    fallback : bool
        Whether a function that cannot be translated, or not for the columns' types, runs in Python instead, row by
        row, of Python's values, and of NumPy arrays for arrays of numbers. A ``FallbackWarning`` says so where the
        function is decorated, the executor's log where only a task knows. Such a function gets a null, as None, for a
        parameter that is annotated with ``| None``.

    Returns
    -------
    callable
        Decorator; what it makes of a function takes columns, or names of columns, and gives a column.

    Raises
    ------
    TranslationError
        When the function is decorated, if it has what the language lacks; at its line.
    PlanError
        If ``returnType`` is a type that no kernel gives. When columns are given, if they do not fit the parameters, or
        on PySpark before 4.1, which has no UDFs of Arrow arrays. In a task, if the results are of another type.
    RecordError
        In a task, if a column holds no numbers; the message names it, and what to cast.
    SparkConnectError
        When columns are given, if the session is one of Spark Connect.

    See Also
    --------
    VRDD.vmap, from_dataframe

    Notes
    -----
    A null in any argument gives null, as of most functions in SQL. Columns have the dtypes that they have for
    :func:`from_dataframe`, and numbers compute as NumPy's: integers of 64 bits wrap around. Python raises what Spark's
    task raises: an error in a task is Spark's own, with ours in its text.

    Examples
    --------
    >>> import pyspark
    >>> from pyspark.sql import SparkSession
    >>> df = SparkSession(sc).createDataFrame([(0.5, 3.0), (None, 1.0)], "x double, r double")
    >>> @udf("double")
    ... def logistic(x, r):
    ...     for _ in range(2):
    ...         x = r * x * (1 - x)
    ...     return x
    >>> logistic
    <vispark.udf logistic(x, r) of double>
    """
    if not isinstance(returnType, str | spark.DataType):
        raise PlanError(f"returnType={returnType!r}; it is a type of Spark's, as in @vispark.udf(\"double\")")
    return functools.partial(_decorated, returnType, fallback)


@brief
def _decorated(returns: str | spark.DataType, fallback: bool, function: Callable[..., Any]) -> ColumnFunction:
    return ColumnFunction(function, returns, fallback=fallback)
