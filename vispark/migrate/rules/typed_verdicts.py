"""Translator's verdict on functions with the types of real records, as ``vmap`` would come to it; nothing runs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vispark.data.records import pack
from vispark.data.records.partition_schema import PartitionSchema
from vispark.data.records.summary import summary
from vispark.errors import PlanError, VisparkError
from vispark.migrate.rules.functions import Verdict, first_line
from vispark.plan import ops
from vispark.plan.lower.lowering import Lowering
from vispark.plan.lower.stages import FETCH
from vispark.plan.map_call import record_map
from vispark.translate import TranslationError

AnyFunction = Callable[..., Any]


def schema_of(records: Sequence[Any]) -> PartitionSchema:
    """Return the schema of records, as a worker would hold them.

    Raises
    ------
    RecordError
        If they cannot be held.
    """
    packed = pack(records, seal=bytes)
    return PartitionSchema(packed.count, len(packed.keys), packed.layout, tuple(packed.signatures))


def described(records: Sequence[Any]) -> str:
    """Return the kind of some records in words, or why no worker can hold them.

    Examples
    --------
    >>> import numpy as np
    >>> described([np.zeros(3), np.ones(3)])
    'rows of 3 float64'
    >>> described([(1.0, np.zeros(3)), (2.0, np.ones(3))])
    'records of (key, float64[3])'
    """
    try:
        schema = schema_of(records)
    except VisparkError as error:
        return first_line(error.message)
    fields = schema.signatures[0].fields if schema.signatures else ()
    if len(fields) == 1 and schema.layout.kind == "elements" and not schema.layout.keyed:
        dtype, shape = fields[0].dtype[1:], fields[0].shape[1:]
        names = {"f8": "float64", "f4": "float32", "i8": "int64", "i4": "int32", "b1": "bool"}
        kind = names.get(dtype, dtype)
        return f"numbers of {kind}" if not shape else f"rows of {' x '.join(map(str, shape))} {kind}"
    # Their number is that of a sample.
    return re.sub(r"^[\d,]+ (record)s? ", r"\1s ", summary([schema]))


def kind_of(records: Sequence[Any]) -> str:
    """Return a text that records of one kind have in common, whatever their number and their values.

    Examples
    --------
    >>> import numpy as np
    >>> kind_of([(1, np.zeros(3))]) == kind_of([(2, np.zeros(3)), (0, np.ones(3))])
    True
    >>> kind_of([(1, np.zeros(3))]) == kind_of([(1, np.zeros(4))])
    False
    """
    try:
        schema = schema_of(records)
    except VisparkError as error:
        return first_line(error.message)
    shapes = {(field.name, field.dtype, field.shape[1:]) for each in schema.signatures for field in each.fields}
    keys = {(type(each[0]).__name__, np.shape(each[0])) for each in records} if schema.layout.keyed else set()
    return f"{schema.layout} {sorted(shapes)} {sorted(keys)}"


#: Reason for which a function of pairs stays.
PAIRS = ('its records are pairs, of which vmap takes the value and map the pair: make them dicts before the cache, '
         '.map(lambda kv: {"key": kv[0], "value": kv[1]}), and read record["key"]')


#: Said of a function of pairs that translates where the pairs are dicts.
AS_DICTS = 'its pairs become dicts before the cache, {"key": ..., "value": ...}'

#: Said of a function of named tuples that translates where these are tuples.
AS_TUPLES = "its named tuples become tuples before the cache"


def of_dicts(function: AnyFunction) -> AnyFunction:
    """Return a function of dicts with a key and a value, by one of pairs.

    Examples
    --------
    >>> of_dicts(lambda pair: pair[0] + pair[1])({"key": 1, "value": 2})
    3
    """
    return lambda record: function((record["key"], record["value"]))


def one_where(function: AnyFunction) -> AnyFunction:
    """Return a function that gives 1 for the records that another one keeps, and 0 for others.

    Examples
    --------
    >>> one_where(lambda x: x > 2)(3), one_where(lambda x: x > 2)(1)
    (1, 0)
    """
    return lambda record: 1 if function(record) else 0


def as_dicts(records: Sequence[Any]) -> list[dict[str, Any]]:
    """Return pairs as dicts with a key and a value."""
    return [{"key": key, "value": value} for key, value in records]


def is_of_pairs(records: Sequence[Any]) -> bool:
    """Return whether records are pairs, whose keys stay in Spark.

    Examples
    --------
    >>> is_of_pairs([(1, 2.0)]), is_of_pairs([2.0])
    (True, False)
    """
    try:
        return schema_of(records).layout.keyed
    except VisparkError:
        return False


def bytes_of(records: Sequence[Any]) -> float | None:
    """Return the bytes that one of these records takes on a device; None where they cannot be held.

    Examples
    --------
    >>> import numpy as np
    >>> bytes_of([np.zeros(3), np.ones(3)])
    24.0
    """
    try:
        schema = schema_of(records)
    except VisparkError:
        return None
    held = sum(math.prod(field.shape) * np.dtype(field.dtype).itemsize for signature in schema.signatures
               for field in signature.fields)
    return held / len(records) if records else None


def typed_verdict(functions: Sequence[tuple[AnyFunction, str]], records: Sequence[Any]) -> Verdict:
    """Return whether a chain of functions translates for some records, and if not, why.

    Parameters
    ----------
    functions : sequence of (function, of)
        Of the chain, from the first on; ``of`` as for :meth:`VRDD.vmap`, empty if it is left out.
    records : sequence
        Records that the first one is of.

    Examples
    --------
    >>> import numpy as np
    >>> typed_verdict([(lambda p: p * 2, "")], [np.zeros(3)])
    Verdict(is_read=True, reason='', line=0, ...)
    >>> typed_verdict([(lambda p: p[:, 0], "")], [np.zeros(3)]).is_read
    False
    """
    try:
        _lowered(functions, records)
    except TranslationError as error:
        return Verdict(False, first_line(error.message), error.line, file=error.file)
    except (VisparkError, PlanError) as error:
        return Verdict(False, first_line(error.message))
    return Verdict(True)


def traffic_of(functions: Sequence[tuple[AnyFunction, str]], records: Sequence[Any]) -> list[float]:
    """Return the bytes a record that the kernels of a chain read and write, as ``explain()`` has them, and its result.

    Parameters
    ----------
    functions, records : sequence
        As for :func:`typed_verdict`.

    Returns
    -------
    list of float
        Bytes read, bytes written, and bytes of the result; empty where that is not known.

    Examples
    --------
    >>> import numpy as np
    >>> traffic_of([(lambda p: p.sum(), "")], [np.zeros(3), np.ones(3)])
    [24.0, 8.0, 8.0]
    """
    try:
        lowering = _lowered(functions, records)
    except VisparkError:
        return []
    moved = [(blocks * read, blocks * written) for number, blocks in lowering.blocks()
             for read, written in lowering.traffic(number)]
    result = sum(content.nbytes - content.keys for content in lowering.results().values())
    return [sum(each) / len(records) for each in (*zip(*moved, strict=True), (result,))] if moved else []


def _lowered(functions: Sequence[tuple[AnyFunction, str]], records: Sequence[Any]) -> Lowering:
    """Return the plan of a chain over records that a worker would hold."""
    nodes = [ops.PlanNode(ops.Map(record_map(function, (), of or None))) for function, of in functions]
    lowering = Lowering((ops.PlanNode(ops.Send()), *nodes), None, FETCH)
    lowering.add(0, schema_of(records))
    lowering.finish()
    return lowering
