"""Virtual RDD: an RDD whose records live in GPU workers.

Each method records one operation. What Spark is asked of a VRDD (a shuffle, a save) it is given by :meth:`VRDD.recv`;
what can be answered from cached data is answered by the workers, without a Spark job.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark import RDD, StorageLevel
from pyspark.resource import ResourceProfile
from pyspark.serializers import Serializer

from gpu_worker.protocol.messages import FoldByKeyStep, FoldStep
from vispark._utils.displays import Explanation
from vispark._utils.lazy import LazyModule
from vispark.api.appearance import Appearance
from vispark.api.boundary import brief, brief_errors
from vispark.api.derived_rdd import derives
from vispark.api.eager import EagerExecution
from vispark.api.explain import IN_DRIVER, Explained, content_of, explain
from vispark.api.fallback import tell
from vispark.api.folds import FoldActions
from vispark.api.gpu_profile import with_profile
from vispark.api.grid_ops import GridOperations
from vispark.api.joins import inside
from vispark.api.keyed_operations import KeyedOperations
from vispark.api.lineage_walk import LineageWalk
from vispark.api.local_rdd import ACTIONS, LocalRDD, is_harmless
from vispark.api.publishing import Publishing
from vispark.api.received_rdd import ReceivedRDD
from vispark.api.sampling import Samples
from vispark.api.statistics import Statistics
from vispark.api.transformations import tells_of_transformations
from vispark.errors import PlanError
from vispark.fold import fold_for_kernel, fold_of
from vispark.fold.lowering import ByKey, FoldRequest
from vispark.lower.grid import lowering
from vispark.lower.stages import FETCH, RequestedOutput
from vispark.plan import ops
from vispark.plan.cuda_source import Kernel
from vispark.plan.exec_call import record_exec
from vispark.plan.map_call import MapSpec, record_map
from vispark.plan.operations.check_finite import CheckFinite
from vispark.plan.ops import Lineage
from vispark.plan.storage_levels import spills_of
from vispark.records.partition_schema import PartitionSchema
from vispark.runtime.driver.residency import Residency
from vispark.runtime.driver.result import PartialResult
from vispark.runtime.driver.session import Session
from vispark.runtime.executor.tasks import Receive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from vispark.api import table_output
else:
    table_output = LazyModule("vispark.api.table_output")     # it imports Arrow and Spark SQL

_NOT_KEPT = StorageLevel(False, False, False, False)


@tells_of_transformations
@derives
@brief_errors
class VRDD(Appearance, EagerExecution, KeyedOperations, FoldActions, GridOperations, Publishing, Samples,
           Statistics):
    """RDD whose records live in GPU workers; made by :func:`send` or ``cache("GPU")`` on an RDD.

    Every RDD method gives what it gives on the RDD that was sent. Nothing is sent or computed before an action.
    """

    # What most never set is their class's, as a loop makes some of them in each pass.
    is_cached = False
    is_checkpointed = False
    has_resource_profile = False
    _bypass_serializer = False
    _lineage: Lineage | None = None
    _residency: Residency | None = None
    _level = _NOT_KEPT
    _received: tuple[tuple[Any, ...], ReceivedRDD] | None = None
    _profile: ResourceProfile | None = None
    _checkpoint: ReceivedRDD | None = None
    _named: str | None = None

    def __init__(self, loader: RDD[Any], op: ops.RecordedOperation, before: VRDD | None):
        self.ctx = loader.ctx
        self.partitioner = None if op.item else loader.partitioner
        self._origin, self._looked_up = loader, LineageWalk._starts
        self._op = op
        self._before = before
        self._partitions: int | None = None if before is None else before._partitions
        self._folds: dict[str, FoldStep | FoldByKeyStep | str] = {}
        self._requests: dict[str, FoldRequest[Any]] = {}
        self._lock = threading.RLock()

    # -- operations ---------------------------------------------------------------------------------------------------

    def send(self) -> VRDD:
        """Refuse: the records are in the worker already.

        Raises
        ------
        PlanError
            Always.
        """
        raise PlanError("the records are in the worker already: send() belongs on a plain RDD")

    def htod(self) -> VRDD:
        """Copy to the device.

        See Also
        --------
        VRDD.dtoh

        Examples
        --------
        >>> sc.parallelize([1.0, 2.0]).send().htod().recv().collect()
        [1.0, 2.0]
        """
        return self._then(ops.ToDevice())

    def dtoh(self) -> VRDD:
        """Copy to the worker's host memory; the content on the device stays there if it is cached.

        See Also
        --------
        VRDD.htod, VRDD.recv
        """
        return self._then(ops.ToHost())

    def exec(self, kernel: Kernel, *arguments: Any, out: Any = None, init: Any = None, grid: Any, block: Any,
             shared: Any = 0) -> VRDD:
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
        return self._with_halos()._then(ops.Exec(spec))

    def vmap(self, f: Callable[..., Any], *arguments: Any, of: str | None = None) -> VRDD:
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
            What the function is of: ``"record"``, the whole of it, whatever its shape, and of pairs the key, too, which
            must be a number; ``"value"``, the whole value of a pair; ``"row"``, what lies along the leading axis of a
            record or value of two dimensions or more. Left out: as above, with a :class:`MeaningWarning` where ``map``
            would give something else.

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
        return self._mapped(record_map(f, arguments, of))

    def vreduce(self, f: Callable[[Any, Any], Any]) -> VRDD:
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
        return functools.reduce(VRDD._then, passes or (ops.FoldInside(fold_for_kernel(f, "vreduce()")),), self)

    def check_finite(self) -> VRDD:
        """Return the records as they are; the device looks for NaN and infinities when it computes them.

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
        return self._then(CheckFinite())

    def recv(self) -> RDD[Any]:
        """Return an ordinary RDD of the records.

        Its tasks take the records from where they are held; where they are not, they compute them from the RDD that was
        sent, like Spark does for a partition that it has lost.
        """
        return self._received_by(self)

    def keys(self) -> RDD[Any]:
        """Return the keys of pairs; of other records the first item, as on any RDD. A VRDD, but for keys of keys or
        values.
        """
        return super().keys() if self._is_narrowed() else self._then(ops.Keys())

    def values(self) -> RDD[Any]:
        """Return the values of pairs; of other records the second item, as on any RDD. A VRDD as :meth:`keys` is one.
        """
        return super().values() if self._is_narrowed() else self._then(ops.Values())

    def toDF(self, schema: Any = None, sampleRatio: float | None = None) -> DataFrame:
        """Return a DataFrame of the records, by Arrow batches and without pandas.

        Its lineage is this VRDD's: Spark takes what workers hold, and computes from the RDD that was sent what they do
        not. Without types in the schema, the first partition that has records is computed at once.

        Parameters
        ----------
        schema : str, StructType, DataType, list of str, or None
            DDL text such as ``"x array<float>, y double"`` or a StructType: numbers are cast to its types. Names of
            columns alone, or nothing: each column has the type of its dtype, unsigned integers the next wider one.
            Records with fields take columns by name, some or all, others by place; 1-D arrays may be spread over as
            many columns.
        sampleRatio : float, optional
            Of no effect, as no record is looked at.

        Returns
        -------
        pyspark.sql.DataFrame
            Of dicts a column for each field; of tuples and pairs ``_1``, ``_2`` and so on; of numbers and arrays the
            column ``value``.

        Raises
        ------
        PlanError
            If pyarrow is missing, the schema does not fit the records, or these are no rows: of two dimensions or more,
            complex, with keys that are no column. At the action where it is found there.

        See Also
        --------
        from_dataframe, VRDD.write_parquet

        Examples
        --------
        >>> from pyspark.sql import SparkSession
        >>> spark = SparkSession(sc)
        >>> numbers = sc.parallelize([1.0, 2.0, 3.0]).cache("GPU")
        >>> numbers.vmap(lambda x: {"x": x, "y": x * x}).toDF().filter("y > 1").collect()
        [Row(x=2.0, y=4.0), Row(x=3.0, y=9.0)]
        """
        self._keep_attached()
        return table_output.to_dataframe(self, schema)

    def write_parquet(self, path: str | os.PathLike[str], compression: str = "snappy", *,
                      overwrite: bool = False) -> None:
        """Write the records to Parquet files, one for each partition that has any, and ``_SUCCESS`` beside them.

        Tasks take the arrays from the workers. The directory comes to be as a whole when all files are written; of a
        URL, whose file system may not rename directories, ``_SUCCESS`` comes last. :func:`read_parquet` gives the same
        records: numbers and arrays are the column ``value``, fields of dicts are columns, places of tuples ``_1``, ...

        Parameters
        ----------
        path : str or path
            A directory that all nodes share, with nothing in it; or what fsspec knows.
        compression : str
            ``snappy``, ``zstd``, ``gzip``, ``lz4``, ``brotli`` or ``none``.
        overwrite : bool
            Whether to replace what is there, once the new files are written.

        Raises
        ------
        PlanError
            If pyarrow is missing, something is there, or the records are no rows of a table: of two dimensions or more,
            complex, or not alike in all partitions; if there are none.

        See Also
        --------
        read_parquet, VRDD.toDF

        Examples
        --------
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "squares")
        >>> sc.parallelize([1.0, 2.0, 3.0], 2).cache("GPU").vmap(lambda x: x * x).write_parquet(path)
        >>> sorted(file.name for file in path.iterdir())
        ['_SUCCESS', 'part-00000.parquet', 'part-00001.parquet']
        >>> read_parquet(sc, path).collect()
        [np.float64(1.0), np.float64(4.0), np.float64(9.0)]
        """
        table_output.write_parquet(self, path, compression, overwrite=overwrite)

    # -- keeping ------------------------------------------------------------------------------------------------------

    def cache(self, level: str = "GPU") -> VRDD:
        """Keep a copy where the records are: on the device, or in host memory after ``send`` or ``dtoh``.

        Returns
        -------
        VRDD
            This VRDD. It is computed once: by the first action that needs it, or without waiting for one, where what it
            is made of is held or many results in a row wait for theirs.
        """
        return self.persist(level)

    def persist(self, storageLevel: str | StorageLevel = "GPU") -> VRDD:
        """Keep a copy, as :meth:`cache` does; a Spark storage level is recorded and means the same.

        Raises
        ------
        PlanError
            If the level is a string other than "GPU", "GPU_AND_HOST" and "GPU_HOST_AND_DISK". The second keeps in
            host memory those partitions that do not fit on the device, and the third those in files that do not fit
            there either.
        """
        spills = spills_of(storageLevel) if isinstance(storageLevel, str) else ""
        with self._lock:
            if self._residency is None:
                self._residency = Session.of(self.ctx).residency(
                    self.name() or str(self._op), spills=spills)
                self._level = StorageLevel.MEMORY_ONLY if isinstance(storageLevel, str) else storageLevel
                self.is_cached = True
                self._begin()
        return self

    def uncache(self) -> VRDD:
        """Release the copy that :meth:`cache` keeps. A plan that is running keeps the content that it needs to its end.
        """
        return self.unpersist()

    def unpersist(self, blocking: bool = False) -> VRDD:
        """Release the copy that :meth:`cache` keeps."""
        with self._lock:
            residency, self._residency = self._residency, None
            self._level = _NOT_KEPT
            self.is_cached = False
        if residency is not None:
            residency.close()
        return self

    def getStorageLevel(self) -> StorageLevel:
        """Return the level asked for; ``MEMORY_ONLY`` for "GPU"."""
        return self._level

    # -- actions answered by the workers ------------------------------------------------------------------------------

    def collect(self) -> list[Any]:
        """Return a list of all records, in order."""
        if not self._is_held():
            return self._inner().collect()
        answer = self._evaluate(range(self.getNumPartitions()), FETCH)
        return [record for index in sorted(answer.records) for record in answer.records[index]]

    def take(self, num: int) -> list[Any]:
        """Return the first ``num`` records; no more than these leave the worker, unless they are pairs."""
        if not self._is_held():
            return self._spark("take", num)
        found: list[Any] = []
        partitions = iter(range(self.getNumPartitions()))
        at_once = 1
        while len(found) < num and (batch := list(itertools.islice(partitions, at_once))):
            answer = self._evaluate(batch, RequestedOutput(limit=num - len(found)))
            found.extend(record for index in batch for record in answer.records[index])
            at_once *= 4
        return found[:num]

    def first(self) -> Any:
        """Return the first record.

        Raises
        ------
        ValueError
            If there is none.
        """
        found = self.take(1)
        if not found:
            raise ValueError("RDD is empty")
        return found[0]

    def isEmpty(self) -> bool:
        """Return whether there are no records."""
        return self.getNumPartitions() == 0 or not self.take(1)

    def count(self) -> int:
        """Return the number of records."""
        if not self._is_held():
            return self._spark("count")
        return sum(content.count for content in self._results())

    # -- what is known of the plan ------------------------------------------------------------------------------------

    def explain(self, *, schema: Any = None, sources: bool = False) -> None:
        """Print the plan, the workers' steps and kernels, and the content that workers hold already.

        Parameters
        ----------
        schema : (shape, dtype), or dict of them by field
            What a record (or, of two dimensions or more, a block) looks like, for a plan whose data is not there yet.
        sources : bool
            Whether to show the kernels' sources.

        See Also
        --------
        VRDD.explanation

        Examples
        --------
        >>> doubled = sc.parallelize([1.0, 2.0]).cache("GPU").vmap(lambda x: 2 * x)
        >>> doubled.explain(schema=((), "float64"))             # doctest: +ELLIPSIS
        == Plan ==
        vmap lambda
          htod  [cached as VRDD ... on device]
            send
        == Rewritten plan ==
        Load(...)
        ToDevice
        Exec(vmap lambda)
        Fetch
        == Kernels ==
        ...
        """
        print(self.explanation(schema=schema, sources=sources))

    def explanation(self, *, schema: Any = None, sources: bool = False) -> Explanation:
        """Return the text that :meth:`explain` prints; notebooks show it with its sections.

        >>> "lambda" in sc.parallelize([1.0]).cache("GPU").vmap(lambda x: 2 * x).explanation()
        True
        """
        return self._explained("", schema, sources)

    def toDebugString(self) -> bytes:
        """Return the plan, and below it the lineage of the RDD that :meth:`recv` gives."""
        return ops.describe(self._chain()).encode() + b"\n" + (self.recv().toDebugString() or b"")

    # -- the rest of being an RDD -------------------------------------------------------------------------------------

    @property
    def _jrdd(self) -> Any:
        return self._inner()._jrdd

    @property
    def _jrdd_deserializer(self) -> Serializer:  # type: ignore[override]
        return self.ctx.serializer

    def id(self) -> int:
        """Return the number of the RDD that :meth:`recv` gives."""
        return self._inner().id()

    def name(self) -> str | None:
        """Return the name given by :meth:`setName`."""
        return self._named

    def setName(self, name: str) -> VRDD:
        """Name the VRDD; errors and ``gpu-worker status`` show the name, too."""
        with self._lock:
            self._named = name
            if self._residency is not None:
                self._residency.rename(name)
        return self

    def getNumPartitions(self) -> int:
        """Return the number of partitions, that of the RDD that was sent."""
        if self._partitions is None:
            first = self
            while first._partitions is None and first._before is not None:
                first = first._before
            if first._partitions is None:
                first._partitions = first._origin.getNumPartitions()
            self._partitions = first._partitions
        return self._partitions

    def mapPartitionsWithIndex(self, f: Callable[[int, Iterable[Any]], Iterable[Any]],
                               preservesPartitioning: bool = False) -> RDD[Any]:
        """Apply a Python function to each partition's records, in Spark."""
        return self.recv().mapPartitionsWithIndex(f, preservesPartitioning)

    def withResources(self, profile: ResourceProfile) -> VRDD:
        """Ask for resources for the tasks that load the records, that carry plans, and of the RDD that :meth:`recv`
        gives.

        What is held already stays where it is. It is the same as :meth:`pyspark.RDD.withResources` on the RDD that was
        sent, which itself stays without a profile.

        Raises
        ------
        PlanError
            If the RDD that was sent has another profile.

        See Also
        --------
        vispark.gpu_profile
        """
        first = self._first
        with self._lock:
            first._origin = with_profile(first._origin, profile)
            with LineageWalk._counting:
                LineageWalk._starts += 1
            self.has_resource_profile = True
            self._profile = profile
            self._received = None
        return self

    def checkpoint(self) -> None:
        """Cut the lineage: at the next action the records are saved in Spark's checkpoint directory.

        What is lost later is rebuilt from there.
        """
        self._cut_lineage("checkpoint")

    def localCheckpoint(self) -> None:
        """Cut the lineage: at the next action the records are saved in the executors' storage."""
        self._cut_lineage("localCheckpoint")

    def isCheckpointed(self) -> bool:
        """Return whether the records have been saved."""
        return self._checkpoint is not None and self._checkpoint.isCheckpointed()

    def isLocallyCheckpointed(self) -> bool:
        """Return whether the lineage was cut by :meth:`localCheckpoint`."""
        return self._checkpoint is not None and self._checkpoint.isLocallyCheckpointed()

    def getCheckpointFile(self) -> str | None:
        """Return the path of the checkpoint that the records were saved to; None if there is none."""
        return None if self._checkpoint is None else self._checkpoint.getCheckpointFile()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _explained(self, by_key: ByKey | str, schema: Any, sources: bool) -> Explanation:
        """Return the text of ``explain`` for this VRDD, as :class:`FoldActions` declares it."""
        folds, requests = ({}, {}) if by_key else (self._folds, self._requests)
        wanted = Explained(self._chain(), self.getNumPartitions(), folds, content_of(schema), sources, by_key, requests)
        return explain(Session.of(self.ctx), wanted)

    def _received_by(self, source: VRDD) -> ReceivedRDD:
        """Return the RDD of :meth:`recv` for the present state of this VRDD's caches; it refers to ``source``."""
        self._compute_grid()
        received = ReceivedRDD(self._loader, self._receive(self._held()), self.partitioner is not None, source)
        received.partitioner = self.partitioner
        return received if self._profile is None else received.withResources(self._profile)

    def _inner(self) -> ReceivedRDD:
        """Return the RDD that stands for this VRDD where Spark asks for one; made again if workers have come to hold
        other results.

        It does not keep this VRDD alive: that is for what :meth:`recv` gives.
        """
        with self._lock:
            self._compute_grid()
            chain, places = self._held(), Session.of(self.ctx).places(self._since())
            held = tuple((number, len(known)) for number, known in places.items())
            if self._received is None or self._received[0] != (chain, held):
                self._received = (chain, held), self._received_by(weakref.proxy(self))
            return self._received[1]

    def _recorded(self, spec: MapSpec) -> VRDD:
        return self._then(ops.Map(spec))

    def _then(self, op: ops.RecordedOperation) -> VRDD:
        return VRDD(self._loader, op, self)

    def _beginning(self, loader: RDD[Any], op: ops.RecordedOperation, partitions: int) -> VRDD:
        found = VRDD(loader, op, None)
        found._partitions = partitions
        return found

    def _shown(self) -> str:
        return self.name() or str(self._op)

    def _is_held(self) -> bool:
        self._save_checkpoint()
        each: VRDD | None = self
        while each is not None and each._residency is None:
            each = each._before
        return each is not None

    def _evaluate(self, partitions: Iterable[int], requested: RequestedOutput) -> PartialResult:
        """Run the plan on cached data; an error names the VRDD."""
        session, partitions = Session.of(self.ctx), partitions if isinstance(partitions, range) else list(partitions)
        self._prepare_grid(partitions)
        answer = session.evaluate(self._loader, self._recent(), partitions, requested, self._chain)
        self._let_go_of_inputs()
        return answer

    def _contents(self) -> dict[int, PartitionSchema]:
        """Compute the nearest cached result, if necessary, and return the schema of each of its partitions."""
        session = Session.of(self.ctx)
        self._run_loops()
        contents = session.ensure(self._loader, self._nearest(), range(self.getNumPartitions()), self._chain)
        self._let_go_of_inputs()
        return contents

    def _results(self) -> list[PartitionSchema]:
        """Return the schema of each partition of the result."""
        contents = self._contents()
        work = lowering(self._recent(), self._nearest(), FETCH, contents.values(),
                        Session.of(self.ctx).workers.shared_limit)
        for partition, content in contents.items():
            work.add(partition, content)
        return list(work.results().values())

    def columnar(self) -> ReceivedRDD:
        """Return the RDD of the partitions' arrays as they come from the workers, each a single record.

        It is computed as :meth:`recv` is.
        """
        self._compute_grid()
        receive = replace(self._receive(self._held()), is_columnar=True)
        return ReceivedRDD(self._loader, receive, False, table_output.ColumnarTokens(self))

    def tokens(self, *,
               columnar: bool = False) -> tuple[RDD[Any], Callable[[int, Iterable[Any]], Iterable[Any]]] | None:
        """Compute the nearest cached result, if necessary; return an RDD with a token for each partition, and the
        function of a task that takes a partition's records, or its arrays, by its token.

        For the RDDs that :meth:`recv` and :meth:`columnar` give. None if nothing is cached, or there are no partitions.
        """
        self._save_checkpoint()
        self._compute_grid()
        if not self._is_held() or not self.getNumPartitions():
            return None
        self._contents()
        session, recent = Session.of(self.ctx), self._recent()
        return session.tokens(recent), Receive(session.credentials, recent, {}, (), columnar).from_token

    def forget_places(self) -> None:
        """Ask the workers again for the places of the nearest cached result, after a plan did not find it."""
        Session.of(self.ctx).find(self._recent())

    def _let_go_of_inputs(self) -> None:
        """Forget the VRDDs before this one once its content is complete; their operations stay, to recompute lost
        content.
        """
        residency, before = self._residency, self._before
        if residency is not None and before is not None and len(residency.places) == self.getNumPartitions():
            with self._lock:
                self._origin, self._lineage = before._loader, before._link()
                self._before = None

    def _spark(self, action: str, *arguments: Any, **named: Any) -> Any:
        """Run an action by Spark: in the driver if few records are held, else by a job over :meth:`recv`."""
        if self._is_held() and action not in _EXPECTED:
            near = self._near(action, arguments, named)
            if near is not None:
                try:
                    found = getattr(RDD, action)(near, *arguments, **named)
                    self._folds[action] = IN_DRIVER
                    return found
                except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                    return Session.of(self.ctx).job(lambda: getattr(RDD, action)(self, *arguments, **named))
            reason = self._folds.get(action, IN_DRIVER)
            tell(self.ctx, action, f"VRDD {self._shown()}",
                 _UNTRUSTED if not isinstance(reason, str) else _NO_KERNEL if reason is IN_DRIVER else reason)
        self._save_checkpoint()
        return Session.of(self.ctx).job(lambda: getattr(RDD, action)(self, *arguments, **named))

    def _near(self, action: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> LocalRDD | None:
        """Return an RDD of the records in the driver, if they are few and the action needs no Spark; else None."""
        if action not in ACTIONS or not all(map(is_harmless, (*arguments, *named.values()))) or not self._is_few():
            return None
        records = self._evaluate(range(self.getNumPartitions()), FETCH).records
        return LocalRDD(self.ctx, [list(records[index]) for index in sorted(records)])

    def _cut_lineage(self, how: str) -> ReceivedRDD:
        self.is_checkpointed = True
        self._checkpoint = saved = self._received_by(weakref.proxy(self))
        getattr(saved, how)()
        saved.is_checkpointed = True        # PySpark's localCheckpoint leaves it, and would compute it again
        return saved

    def _save_checkpoint(self) -> None:
        """Let Spark save the records if a checkpoint was requested, and start the lineage from the checkpoint."""
        saved = self._checkpoint
        if saved is None or self._origin is saved:
            return
        if self._reaches():         # Tasks save what is held, which may be held anew since.
            saved = self._cut_lineage("localCheckpoint" if saved.isLocallyCheckpointed() else "checkpoint")
        # Not saved.count(): that would take what workers hold, and save nothing.
        Session.of(self.ctx).job(saved._jrdd.count)
        with self._lock:
            on_host = ops.place_of(self._recent()) == "host"
            self._origin, self._before, self._end = saved, None, None
            self._op, self._lineage = (ops.Send(), None) if on_host else (ops.ToDevice(), Lineage((ops.Send(),)))
            # Last: whoever reads the new number finds the new origin.
            with LineageWalk._counting:
                LineageWalk._starts += 1


#: Actions that Spark answers, repeated where a Python worker crashes under them.
_SPARK_ACTIONS = ("collectAsMap", "countApproxDistinct", "foreach", "foreachPartition", "lookup", "meanApprox",
                  "reduceByKeyLocally", "sumApprox")

#: Those of which nobody is told: users call them to have Python run, or they begin with a ``collect``.
_EXPECTED = ("collectAsMap", "foreach", "foreachPartition")
_NO_KERNEL = "it has no kernel; what has one: sum, mean, min, max, reduce, fold, aggregate and reduceByKey(numKeys=)"
_UNTRUSTED = "the result may not be Python's: an integer overflows, or floats that are compared are NaN"


def _spark_action(name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(RDD, name))
    def action(self: VRDD, *arguments: Any, **named: Any) -> Any:
        return self._spark(name, *arguments, **named)
    return brief(action)


for _name in _SPARK_ACTIONS:
    setattr(VRDD, _name, _spark_action(_name))


def send(rdd: RDD[Any]) -> VRDD:
    """Return the VRDD of ``rdd.send()``; see :func:`vispark.api.patch_pyspark.install`."""
    return VRDD(rdd, ops.Send(), None)
