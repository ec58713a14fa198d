"""Operations of a VRDD that copy its records, launch kernels on them, and translate functions of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from pyspark import RDD

from vispark.api.operations import grid_ops
from vispark.api.operations.joins import inside
from vispark.api.rdds.recorded_rdd import Recorded, RecordedRDD
from vispark.errors import PlanError
from vispark.plan import ops
from vispark.plan.cuda_source import Kernel
from vispark.plan.exec_call import record_exec
from vispark.plan.fold import fold_for_kernel, fold_of
from vispark.plan.map_call import record_map
from vispark.plan.operations.check_finite import CheckFinite


def send(vrdd: RecordedRDD) -> NoReturn:
    """Refuse: the records are in the worker already.

    Raises
    ------
    PlanError
        Always.

    Examples
    --------
    >>> sc.parallelize([1.0]).cache("GPU").send()
    Traceback (most recent call last):
        ...
    gpu_worker.protocol.errors.PlanError: ...
    """
    raise PlanError("the records are in the worker already: send() belongs on a plain RDD")


def htod(vrdd: Recorded) -> Recorded:
    """Copy to the device.

    Returns
    -------
    VRDD
        Of the same records, dtypes and shapes; lazy.

    See Also
    --------
    VRDD.dtoh

    Examples
    --------
    >>> sc.parallelize([1.0, 2.0]).send().htod().recv().collect()
    [1.0, 2.0]
    """
    return vrdd._then(ops.ToDevice())


def dtoh(vrdd: Recorded) -> Recorded:
    """Copy to the worker's host memory; the content on the device stays there if it is cached.

    Returns
    -------
    VRDD
        Of the same records, dtypes and shapes; lazy.

    See Also
    --------
    VRDD.htod, VRDD.recv

    Examples
    --------
    >>> sc.parallelize([1.0, 2.0]).cache("GPU").dtoh().collect()
    [1.0, 2.0]
    """
    return vrdd._then(ops.ToHost())


def exec_(vrdd: Recorded, kernel: Kernel, *arguments: Any, out: Any = None, init: Any = None, grid: Any, block: Any,
         shared: Any = 0) -> Recorded:
    """Launch a CUDA kernel on every block.

    Parameters
    ----------
    kernel : Kernel
        One of a :class:`~vispark.Kernels`.
    *arguments
        In the order of the kernel's parameters. ``IN`` and ``OUT`` (``IN["field"]``, ``OUT["field"]``) stand for
        the block's buffers, ``IN.shape[i]`` for an extent. NumPy arrays and scalars are passed with their dtype,
        extents and Python numbers as the parameter's type (``int``, ``float`` or ``bool`` where the source does not
        show it), structures by value as structured scalars or bytes; a function is called with the block and gives
        one of these. A kernel without ``OUT`` works in place on a copy of its input.
    out : (shape, dtype), dict of them by field, function of the block, or None
        What the kernel writes; None: shape and dtype of the input.
    init : number, dict of them by field, or None
        What the elements of ``OUT`` are before the launch; None leaves them undefined.
    grid, block : int, tuple of up to 3 ints, or function of the block
        The launch's extents, in blocks and in threads.
    shared : int or function of the block
        Dynamic shared memory, in bytes.

    Returns
    -------
    VRDD
        Elements stay elements: the result's leading axis are the records. Blocks stay blocks.

    Raises
    ------
    LaunchError
        If something does not fit the kernel's declaration; where the data decides, at the action.

    Examples
    --------
    >>> k = Kernels('extern "C" __global__ void twice(const double* x, double* y, int n)'
    ...             '{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 2 * x[i]; }')
    >>> numbers = sc.parallelize([1.0, 2.0, 3.0], 2).cache("GPU")
    >>> numbers.exec(k.twice, IN, OUT, IN.shape[0], grid=1, block=32).collect()
    [2.0, 4.0, 6.0]
    """
    spec = record_exec(kernel, arguments, out=out, init=init, grid=grid, block=block, shared=shared)
    return grid_ops.with_halos(vrdd)._then(ops.Exec(spec))


def vmap(vrdd: Recorded, f: Callable[..., Any], *arguments: Any, of: str | None = None) -> Recorded:
    """Apply a plain Python function to every element, on the device.

    The function is translated (see docs/guide/translator.md), never called. Elements are the records, as for
    ``map``, but of pairs that were sent the values, as for ``mapValues``, and of records of two dimensions or more
    their rows: what lies along the leading axis. On a grid's blocks they are its cells, and a ``@stencil`` reads
    their neighbours too (see docs/guide/grids.md).

    Parameters
    ----------
    f : callable
        Of an element and the arguments. A function of a record with named fields takes a field by naming a
        parameter after it; a dict that it returns replaces those fields.
    *arguments
        Numbers, NumPy arrays and lists of arrays of one shape, by value and by place.
    of : str, optional
        What the function is of: ``"record"``, the whole of it, whatever its shape, of a tuple each item in its
        type, and of pairs the key, too, which must be a number; ``"value"``, the whole value of a pair; ``"row"``,
        what lies along the leading axis of a record or value of two dimensions or more, or the numbers of a tuple as
        an array of one dtype. Left out: as above, with a :class:`MeaningWarning` where ``map`` would give something
        else.

    Returns
    -------
    VRDD
        Of what the function gives, lazy: numbers, arrays, tuples or dicts of these, below the keys of pairs that were
        sent; of rows and cells an array of one for each. Numbers are Python's where all that they are made of is:
        ``float`` (float64), ``int`` (int64) or ``bool``; else NumPy's, promoted as NumPy promotes dtypes.

    Raises
    ------
    TranslationError
        If the function has what the language lacks, at its line; if the data's types forbid it, at the action.
    PlanError
        If ``of`` is none of these, or a stencil's halos are stale; at the action, if ``of`` does not fit the
        records, or a stencil has no Grid or reaches beyond the halo.

    Examples
    --------
    >>> sc.parallelize([1.0, 2.0, 3.0], 2).cache("GPU").vmap(lambda x, k: k * x + 1, 2.0).collect()
    [3.0, 5.0, 7.0]
    >>> import numpy as np
    >>> sc.parallelize([np.ones((2, 3)), np.eye(3)], 2).cache("GPU").vmap(lambda m: m.sum(), of="record").collect()
    [np.float64(6.0), np.float64(3.0)]
    """
    return grid_ops.mapped(vrdd, record_map(f, arguments, of))


def vreduce(vrdd: Recorded, f: Callable[[Any, Any], Any]) -> Recorded:
    """Fold inside each record along its leading axis, on the device.

    Parameters
    ----------
    f : callable
        Of two elements of a record: one of ``operator``'s or NumPy's associative functions, ``min``, ``max``, a
        Python function that joins its two values by such an operator, tuples part by part, or another associative
        function that the translator takes and that gives what it takes; it joins neighbours, in three passes.

    Returns
    -------
    VRDD
        Of a record of shape (n, ...) what is left is of shape (...), of its dtype; of a dict each field. The kind
        of the records stays. ``min`` and ``max`` of floats give NaN where there is one, as NumPy's do.

    Raises
    ------
    PlanError
        If the function cannot be lowered, or is not associative for three numbers; at the action, if the records
        have no axis or no kernel.

    Examples
    --------
    >>> import numpy as np
    >>> blocks = sc.parallelize([np.array([[1.0, 2.0], [3.0, 4.0]])]).cache("GPU")
    >>> blocks.vreduce(lambda a, b: a + b).collect()
    [array([4., 6.])]
    """
    passes = inside(f) if isinstance(fold_of(f), str) else ()
    return functools.reduce(RecordedRDD._then, passes or (ops.FoldInside(fold_for_kernel(f, "vreduce()")),), vrdd)


def check_finite(vrdd: Recorded) -> Recorded:
    """Return the records as they are; the device looks for NaN and infinities when it computes them.

    Returns
    -------
    VRDD
        Of the same records, dtypes and shapes; lazy.

    Raises
    ------
    NotFinite
        At the action, if a number is NaN or infinite; it names the first one of a partition: partition, block of
        records, field and place.

    See Also
    --------
    VRDD.iterate : looks for them in the steps of a loop.

    Examples
    --------
    >>> numbers = sc.parallelize([1.0, 4.0], 1).cache("GPU")
    >>> numbers.vmap(lambda x: 1 / x).check_finite().sum()
    1.25
    >>> numbers.vmap(lambda x: 1 / (x - 4)).check_finite().sum()
    Traceback (most recent call last):
    ...
    gpu_worker.protocol.errors.NotFinite: element (1,) of its records, in block 0 of the partition, is NaN ...
    """
    return vrdd._then(CheckFinite())


def keys(vrdd: RecordedRDD) -> RDD[Any]:
    """Return the keys of pairs; of other records the first item, as on any RDD. A VRDD, but for keys of keys or
    values.

    Returns
    -------
    RDD
        A VRDD of the keys: numbers in their types where a ``vmap`` computed them, else the objects that were sent. An
        RDD of Spark's where these are keys or values of pairs themselves.

    Examples
    --------
    >>> sc.parallelize([(1, 2.0), (3, 4.0)]).cache("GPU").keys().collect()
    [1, 3]
    """
    return RDD.keys(vrdd) if vrdd._is_narrowed() else vrdd._then(ops.Keys())


def values(vrdd: RecordedRDD) -> RDD[Any]:
    """Return the values of pairs; of other records the second item, as on any RDD. A VRDD as :meth:`keys` is one.

    Returns
    -------
    RDD
        A VRDD of the values in their shapes and dtypes; an RDD of Spark's where these are keys or values themselves.

    Examples
    --------
    >>> pairs = sc.parallelize(range(4), 2).cache("GPU").vmap(lambda n: (n % 2, n * n))
    >>> pairs.partitionBy(2).values().vmap(lambda x: x + 1).collect()
    [1, 5, 2, 10]
    """
    return RDD.values(vrdd) if vrdd._is_narrowed() else vrdd._then(ops.Values())
