"""Tables of values by key that stay in workers: results of folds, and of functions of these, as arguments of others."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np
from pyspark import RDD
from pyspark.rdd import portable_hash

from gpu_worker.protocol.errors import KeysRefused
from gpu_worker.protocol.messages import Field, FoldByKeyStep, Signature
from vispark._utils.boundary import brief_errors
from vispark._utils.displays import Explanation
from vispark.api.keys.keyed import KeptSource, KeyedExchange, SparkShuffle, kept_source, rebuilt_from
from vispark.api.keys.reduced_rdd import ReducedRDD
from vispark.api.rdds.driver_rdd import DriverRDD
from vispark.api.rdds.fallback import report_fallback
from vispark.api.rdds.plan_texts import explained
from vispark.api.rdds.recorded_rdd import RecordedRDD
from vispark.data.records.layout import RecordLayout, RecordPart
from vispark.data.records.partition_schema import PartitionSchema
from vispark.errors import PlanError
from vispark.plan import ops
from vispark.plan.fold.lowering import FoldRequest, records
from vispark.plan.lower.grid import lowering
from vispark.plan.lower.stages import FETCH, RequestedOutput
from vispark.plan.map_call import record_map
from vispark.plan.operation import tables_of
from vispark.plan.operations.shuffled import Shuffled
from vispark.plan.ops import Lineage
from vispark.plan.references import HeldValue, TableReference
from vispark.runtime.driver.session import Session
from vispark.runtime.driver.table_copies import compute_copies, find_copy
from vispark.translate.frontend.capture import Referable
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.nodes import Constant

log = logging.getLogger(__name__)

#: From how many bytes on a table that is made of another is not copied to the driver at once, and after how many
#: tables, one made of the other, it is all the same: so that a loop holds no more than these.
_SMALL_BYTES, _DEEPEST = 16 << 20, 4
_NOTHING = "there are no records"


@brief_errors
class KeyedTable(DriverRDD, Referable):
    """RDD of (key, value) pairs with ascending keys below a number, which workers hold; an argument by reference.

    In a function that is translated, ``table[k]`` is the value of key ``k``, and ``len(table)`` how many keys there can
    be; values of keys that do not occur are zeros. It is computed at the first action, or where a function that takes
    it is.

    Examples
    --------
    >>> pairs = sc.parallelize([(0, 1.0), (2, 3.0), (0, 2.0)]).cache("GPU")
    >>> table = pairs.reduceByKey(lambda a, b: a + b, numKeys=3).table
    >>> table.collect()
    [(0, 3.0), (2, 3.0)]
    >>> sc.parallelize([0, 1, 2]).cache("GPU").vmap(lambda k, table: table[k], table).collect()
    [3.0, 0.0, 3.0]
    """

    def __init__(self, pairs: RecordedRDD, keys: int, schema: PartitionSchema, depth: int,
                 base: KeyedTable | None = None):
        super().__init__(pairs.ctx)
        self.partitioner = None
        #: The table that it is a function of, until it is computed.
        self._base = base
        self._held, self._keys, self._schema = pairs, keys, schema
        self._reference = _Reference(self, depth)

    def vmap(self, f: Callable[..., Any], *arguments: Any) -> KeyedTable:
        """Apply a plain Python function to the value of each key that occurs, on the device; keys stay beside them.

        Parameters
        ----------
        f : callable
            Of a value and the arguments, as for :meth:`VRDD.vmap`.
        *arguments
            As for :meth:`VRDD.vmap`.

        Returns
        -------
        KeyedTable
            Of the same keys; of none where nothing was folded.

        Raises
        ------
        TranslationError, PlanError
            As of :meth:`VRDD.vmap`; or if there are more than three arguments.

        Examples
        --------
        >>> numbers = sc.parallelize([1.0, 2.0, 4.0]).cache("GPU")
        >>> pairs = numbers.vmap(lambda x: (int(x) % 2, (x, 1)))
        >>> sums = pairs.reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1]), numKeys=2)
        >>> means = sums.vmap(lambda s: s[0] / s[1])
        >>> means.collect(), numbers.vmap(lambda x, m: x - m[int(x) % 2], means).collect()
        ([(0, 3.0), (1, 1.0)], [0.0, -1.0, 1.0])
        """
        name = record_map(f, arguments).label
        parts = self._schema.layout.parts       # none, where there was nothing to fold
        key = _KEYS.get(parts[0].types[0], _same) if parts else _same
        spec = replace(record_map(_of_value(f, len(arguments), key), arguments), label=name)
        mapped, depth = self._held._then(ops.Map(spec)), max(self._reference.depth, _depth(spec.tables))
        work = lowering(mapped._recent(), mapped._nearest(), FETCH, [self._schema],
                        Session.of(self.ctx).workers.shared_limit)
        work.add(0, self._schema)
        return KeyedTable(mapped.cache(), self._keys, work.results()[0], depth, self)

    def toNumpy(self) -> np.ndarray:
        """Return the values by key as one array, of shape (keys, ...); zeros for keys that do not occur.

        Returns
        -------
        ndarray of shape (keys, ...)
            Behind the keys the shape of a value; of the values' dtype, float64, int64 or bool of Python's numbers.

        Raises
        ------
        PlanError
            If the values are tuples.

        Examples
        --------
        >>> pairs = sc.parallelize([0.0, 2.0, 2.5]).cache("GPU").vmap(lambda x: (int(x), x))
        >>> pairs.reduceByKey(lambda a, b: a + b, numKeys=3).toNumpy()
        array([0. , 0. , 4.5])
        """
        part, shape = self._described()
        _, arrays = self.pairs()        # which has rows, as it is known what they are
        if len(arrays[part.name]) == self._keys:
            return arrays[part.name]
        table = np.zeros(shape, part.dtype)
        table[arrays["0"]] = arrays[part.name]
        return table

    def pairs(self) -> tuple[RecordLayout, dict[str, np.ndarray]]:
        """Return the pairs of the keys that occur as arrays, with the layout that makes records of them."""
        self._compute()
        return self._arrays()

    def keys(self) -> RDD[Any]:
        """Return the keys that occur."""
        keys: RDD[Any] = self._held.keys()
        return keys

    def values(self) -> RDD[Any]:
        """Return the values of the keys that occur."""
        values: RDD[Any] = self._held.values()
        return values

    def collectAsMap(self) -> dict[Any, Any]:
        """Return the pairs as a dict."""
        return dict(self.collect())

    def getNumPartitions(self) -> int:
        """Return 1: the workers that need a table hold all of it."""
        return 1

    def explain(self, *, schema: Any = None, sources: bool = False) -> None:
        """Print the plan as ``VRDD.explain`` does."""
        print(self.explanation(schema=schema, sources=sources))

    def explanation(self, *, schema: Any = None, sources: bool = False) -> Explanation:
        """Return the text that :meth:`explain` prints."""
        return explained(self._held, "", schema, sources)

    def constant(self, what: str) -> Constant:
        """Return the values by reference; see :class:`Referable`."""
        try:
            part, shape = self._described()
        except PlanError as error:
            raise Refusal(f"{what}: {error.message}") from error
        return Constant(part.dtype.str, shape, self._reference)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _records(self) -> list[Any]:
        layout, arrays = self.pairs()
        return list(records(layout, arrays)) if arrays else []

    def _to_spark(self) -> RDD[Any]:
        records: RDD[Any] = self._held.recv()
        return records

    def _described(self) -> tuple[RecordPart, tuple[int, ...]]:
        """Return the part of the values, and the shape of the array by key.

        Raises
        ------
        PlanError
            If the values are tuples, or there is no key of which to know what they are.
        """
        parts = self._schema.layout.parts
        if not self._schema.signatures:
            raise PlanError("a table without keys, as nothing was folded, is no argument")
        if len(parts) != 2 or parts[1].name != "1":
            raise PlanError("a table of tuples is no array, and functions take arrays: make one of it first, as in "
                            "table.vmap(lambda v: v[0] / v[1])")
        field = next(each for each in self._schema.signatures[0].fields if each.name == "1")
        return parts[1], (self._keys, *field.shape[1:])

    def _arrays(self) -> tuple[RecordLayout, dict[str, np.ndarray]]:
        """Return the pairs as arrays, which workers hold."""
        held = self._held
        fetched = Session.of(self.ctx).evaluate(held._loader, held._recent(), range(1), FETCH, held._chain,
                                                is_columnar=True).records[0]
        return fetched.schema.layout, {name: array for block in fetched.blocks for name, array in block.items()}

    def _compute(self) -> None:
        """Have workers hold the table, and cut its lineage where a loop would make that longer and longer."""
        self._hold()
        depth = self._reference.depth
        if depth > 1 and (self._nbytes() <= _SMALL_BYTES or depth >= _DEEPEST):
            self._cut()

    def _hold(self) -> None:
        """Have each worker that holds the table that this one is a function of hold this one too; else one of them."""
        base, held = self._base, self._held
        if base is None:
            held._contents()
            return
        base._hold()
        start = base._held._residency
        assert start is not None
        loader, chain = held._loader, held._chain(lambda node: node.cached is not None and node.cached == start.cached)
        held._contents()
        if len(start.copies) > 1 and held._residency is not None:
            compute_copies(Session.of(self.ctx), loader, chain, start.cached, held._residency)
        self._base = None

    def _nbytes(self) -> int:
        residency = self._held._residency
        return sum(content.nbytes for content in residency.contents.values()) if residency is not None else 0

    def _cut(self) -> None:
        """Cut the table's lineage: after a loss it is made of its content, which the driver keeps, and not of other
        tables.
        """
        pairs, (layout, arrays) = self._held, self._arrays()
        shuffle = SparkShuffle(pairs, functools.partial(_given, pairs.ctx, layout, arrays), 1)
        shuffle.source = None
        with pairs._lock:
            assert pairs._residency is not None
            pairs._residency.exchange = None
            pairs._origin, pairs._before, pairs._end = shuffle, None, None
            pairs._op = ops.ToDevice()
            pairs._lineage = Lineage((Shuffled(f"a table of {self._keys} keys, from the driver", layout),))
        self._reference.cut()


class _Reference(TableReference):
    """A table as an argument."""

    def __init__(self, table: KeyedTable, depth: int):
        self._table, self._depth = table, depth
        #: The workers that hold a copy, by address and epoch, and the copies' number.
        self._copies: set[Hashable] = set()
        self._copied: Any = None

    def __str__(self) -> str:
        part, shape = self._table._described()
        return f"VRDD {self._residency.cached}, a table of {part.dtype.name} {shape}, by reference"

    def __bytes__(self) -> bytes:
        return self._table.toNumpy().tobytes()

    @property
    def _residency(self) -> Any:
        return self._table._held._residency

    def bring(self) -> None:
        self._table._compute()

    def at(self, home: Hashable) -> HeldValue:
        if home in self._residency.copies or home in self._residency.places.values():
            return HeldValue(self._residency.cached.number)
        if self._copied is None:
            self._copied = Session.of(self._table.ctx).residency(f"a copy of {self._residency.cached.name}")
        if home in self._copies:
            return HeldValue(self._copied.cached.number)
        self._copies.add(home)
        return HeldValue(self._copied.cached.number, bytes(self))

    def lost(self) -> None:
        self._copies.clear()
        self._residency.copies = frozenset()
        self._table._held.forget_places()

    def cut(self) -> None:
        """Note that the table is made of no others any more."""
        self._depth = 1

    @property
    def depth(self) -> int:
        return self._depth


def _depth(tables: Sequence[TableReference]) -> int:
    """Return the depth of a table that is made of others; those that are the last of many are computed before."""
    for table in tables:
        if table.depth >= _DEEPEST:
            table.bring()
    return 1 + max([table.depth for table in tables], default=0)


def _of_value(f: Callable[..., Any], count: int, key: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return the function of a pair that keeps its key, as a number of its type, and applies ``f`` to its value."""
    if count == 0:
        return lambda pair: (key(pair[0]), f(pair[1]))
    if count == 1:
        return lambda pair, a: (key(pair[0]), f(pair[1], a))
    if count == 2:
        return lambda pair, a, b: (key(pair[0]), f(pair[1], a, b))
    if count == 3:
        return lambda pair, a, b, c: (key(pair[0]), f(pair[1], a, b, c))
    raise PlanError(f"{count} arguments beside the value of a table; up to 3 are given so, and others are captured")


def _given(context: Any, layout: RecordLayout, arrays: dict[str, np.ndarray], _: Any) -> RDD[Any]:
    return _parallel(context, list(records(layout, arrays)))


def _parallel(context: Any, pairs: list[Any]) -> RDD[Any]:
    rdd: RDD[Any] = context.parallelize([pairs], 1).flatMap(_same)
    return rdd


def _same(value: Any) -> Any:
    return value


#: Python's types of keys, as which a function gives them back.
_KEYS: dict[str, Callable[[Any], Any]] = {"int": int, "bool": bool}


class _TableFold(KeyedExchange):
    """Fold whose result workers keep: of several, which exchange what they fold, each one; else the driver joins it."""

    def __call__(self) -> None:
        target = self._target()
        assert target is not None
        if not find_copy(Session.of(self._shuffle.ctx), target):
            super().__call__()

    def _refused(self, source: RecordedRDD, error: KeysRefused) -> None:
        log.info("the table of %s is joined in the driver: %s", self._name, error.message)


def table_of(source: RecordedRDD, request: FoldRequest[Any] | str, function: Callable[[Any, Any], Any],
             keys: int | None, double: bool) -> KeyedTable:
    """Return the table of a fold of a VRDD, with its one key 0 where there are none.

    Parameters
    ----------
    source : VRDD
        The records, pairs where the fold is by key.
    request : FoldRequest or str
        The fold, or why workers cannot run it.
    function : callable
        What the fold is by, for Spark.
    keys : int or None
        How many keys there can be; None of a fold without keys.
    double : bool
        As of :class:`ByKey`.
    """
    if not source._is_held():
        source = source.cache()
    schema = _schema(source, request)
    action, depth = "reduce" if keys is None else "reduceByKey", _depth(tables_of(source._chain()))
    if isinstance(schema, str):
        if schema != _NOTHING:
            report_fallback(source.ctx, action, f"VRDD {source._shown()}", schema,
                            "gives a table that Python makes: it is a Spark job, and the table goes to the workers "
                            "from there")
        pairs = _from_spark(source, function, by_key=keys is not None)
        return KeyedTable(pairs, keys or 1, pairs._results()[0], depth)
    layout = schema.layout
    name = f"{action} table"
    shuffle = SparkShuffle(source._alone(), functools.partial(_folded, function, keys, double, kept_source(source)), 1)
    label = f"{action} into a table of {keys or 1} keys, in the workers, of {source._shown()}"
    vrdd = source._beginning(shuffle, Shuffled(label, layout), 1)._then(ops.ToDevice())
    vrdd._residency = target = Session.of(source.ctx).residency(name)
    vrdd.is_cached = True
    requested = RequestedOutput(fetch=False, fold=request, name=name, table=layout)  # type: ignore[arg-type]
    target.exchange = _TableFold(source, shuffle, requested, target)
    return KeyedTable(vrdd, keys or 1, schema, depth)


def _schema(source: RecordedRDD, request: FoldRequest[Any] | str) -> PartitionSchema | str:
    """Return the schema of a table with one row, or why workers cannot make it."""
    contents = [content for content in source._results() if content.count]
    if isinstance(request, str) or not contents:
        return request if isinstance(request, str) else _NOTHING
    step = request.lower(contents)
    if isinstance(step, str):
        return step
    layout, fields = contents[0].layout, {each.name: each for each in contents[0].signatures[0].fields}
    results = {each.field: each.result for each in step.fields}
    below = "" if isinstance(step, FoldByKeyStep) else "1"
    if layout.kind != "elements" or any(part.form == "tuple" for part in layout.parts):
        return "the records are blocks, or tuples that were sent"
    described = [] if not below else [(RecordPart("0", "number", ("int",)), Field("0", "<i8", (1,)))]
    for part in layout.parts:
        result = np.dtype(results.get(part.name) or results.get("") or part.dtype)
        if result != part.dtype:
            part = replace(part, types=("int",) if part.types[0] == "bool" else (result.str,))
        name = ".".join(filter(None, (below, part.name)))
        described.append((replace(part, name=name), Field(name, result.str, (1, *fields[part.name].shape[1:]))))
    parts, after = zip(*described, strict=True)
    return PartitionSchema(1, 0, RecordLayout("elements", False, parts, tupled=True), (Signature(after),))


def _folded(function: Callable[[Any, Any], Any], keys: int | None, double: bool, kept: KeptSource,
            lineage: Any) -> RDD[Any]:
    """Return the RDD of a table's pairs by an action in the workers, of what is held of the records or loaded anew."""
    source = rebuilt_from(kept, lineage)
    keeps = not source._is_held()
    if keeps:
        source.cache().count()
    try:
        if keys is None:
            return _parallel(source.ctx, [(0, source.reduce(function, np.float64 if double else None))])
        pairs = ReducedRDD(source, function, None, portable_hash, keys, double).collect()
        return _parallel(source.ctx, sorted(pairs, key=itemgetter(0)))
    finally:
        if keeps:
            source.uncache()


def _from_spark(source: RecordedRDD, function: Callable[[Any, Any], Any], *, by_key: bool) -> Any:
    """Return the VRDD of a table's pairs that Spark folds."""
    pairs: Any = RDD.reduceByKey(source, function, 1, hash).sortByKey(numPartitions=1) if by_key else \
        _parallel(source.ctx, [(0, source.reduce(function))])
    return pairs.map(_as_fields).cache("GPU").vmap(_as_pair).cache()


def _as_fields(pair: Any) -> Any:
    return {"key": pair[0], "value": pair[1]}


def _as_pair(key, value):       # type: ignore[no-untyped-def]
    return key, value
