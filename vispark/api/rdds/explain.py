"""Description of a plan: recorded operations, workers' steps, kernels, and content that workers hold already."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpu_worker.protocol import transport_kinds
from gpu_worker.protocol.messages import DISK_TIERS, TIERS, Field, FoldByKeyStep, FoldStep, Launch, Signature, Step
from vispark._utils.boundary import brief
from vispark._utils.displays import Explanation
from vispark.data.records import RecordLayout
from vispark.data.records.layout import RecordPart
from vispark.data.records.partition_schema import PartitionSchema
from vispark.data.records.summary import size
from vispark.errors import PlanError, VisparkError
from vispark.plan import ops
from vispark.plan.fold.lowering import ByKey, FoldRequest
from vispark.plan.lower import stages
from vispark.plan.lower.grid import GridLowering
from vispark.plan.lower.grid import lowering as lowering_for
from vispark.plan.lower.lowering import Lowering
from vispark.plan.lower.stages import FETCH, RequestedOutput
from vispark.plan.map_call import record_map
from vispark.plan.operation import tables_of
from vispark.plan.ops import DatasetId, LogicalPlan
from vispark.runtime.driver.residency import Residency
from vispark.runtime.driver.session import Session
from vispark.translate import ElementField, TranslationError, specialise_stencil
from vispark.translate.ir.folding import ACCUMULATOR_BYTES
from vispark.translate.kernels.matrix_fold import is_matrix_fold
from vispark.translate.nearest.two_pass import is_matrix_work

#: Stands for the reason of a fold that was done in the driver.
IN_DRIVER = "the driver had the records"
#: The same of one that workers ran by sorting each partition.
IN_ORDER = "in the workers, which put each partition in order"
#: The same of one by a function that is no operator.
IN_PASSES = "in the workers, which join neighbouring records by the function"

#: The same of records that workers draw, knowing how many there are.
BY_INDEX = "in the workers, which draw from the number of each partition's records"
#: The same of numbers that workers count in ranges, or sum in passes.
BY_COUNTS = "in the workers, by passes that count and sum"
#: Those of actions that are no fold, and run in the workers.
_IN_WORKERS = (IN_ORDER, IN_PASSES, BY_INDEX, BY_COUNTS)


@dataclass(frozen=True)
class Explained:
    """Input of :func:`explain`: a recorded chain, and the folds and requests of its actions.

    Attributes
    ----------
    chain : LogicalPlan
        From the send.
    partitions : int
        Their number.
    folds : mapping
        The fold that each action ran last, or why it was a Spark job.
    schema : PartitionSchema or None
        What a partition looks like, where that is not known yet.
    sources : bool
        Whether to show the kernels' sources.
    by_key : ByKey or str
        The ``reduceByKey`` behind the chain, or why it is a Spark job; empty if there is none.
    requests : mapping
        What was asked for by each action whose fold ran in the workers.
    """

    chain: LogicalPlan
    partitions: int
    folds: Mapping[str, FoldStep | FoldByKeyStep | str]
    schema: PartitionSchema | None = None
    sources: bool = False
    by_key: ByKey | str = ""
    requests: Mapping[str, FoldRequest[Any]] = field(default_factory=dict)


def explain(session: Session, wanted: Explained) -> Explanation:
    """Return the text that ``VRDD.explain`` and ``ReducedRDD.explain`` print."""
    chain, requested = wanted.chain, FETCH
    folds: dict[str, FoldStep | FoldByKeyStep | str | None] = dict(wanted.folds)
    start = next((node.cached for node in reversed(chain) if node.cached), None)
    contents = _contents(session, start, wanted)
    if wanted.by_key:
        request = "nothing is cached" if start is None else wanted.by_key
        requested = FETCH if isinstance(request, str) else RequestedOutput(fold=request)
    lowering = _lowered(chain, start, requested, contents, session.workers.shared_limit)
    if wanted.by_key:
        fold: Any = lowering.fold if lowering and requested.fold else request
        if isinstance(fold, str):
            lowering, requested = _lowered(chain, start, FETCH, contents, session.workers.shared_limit), FETCH
        folds["reduceByKey"] = fold if isinstance(fold, str | FoldByKeyStep) else None
    return Explanation("\n".join([
        "== Plan ==", ops.describe(chain),
        "== Rewritten plan ==", *_rewritten(chain, start, requested, lowering),
        *(["== Kernels ==", *_kernels(lowering, wanted)] if lowering and any(lowering.launches) else []),
        *(["== Stencils ==", *_stencils(lowering, wanted)] if isinstance(lowering, GridLowering) and lowering.stencils
          else _stencils_to_come(chain, start) if lowering is None else []),
        *(line for action, request in wanted.requests.items()
          for line in _kernels_of(action,
                                  _lowered(chain, start, RequestedOutput(fold=request), contents,
                                           session.workers.shared_limit),
                                  wanted)),
        f"== Data: {wanted.partitions} partitions ==", *_held(session, chain),
        *_moved(chain, start, lowering, contents),
        *(["== Folds =="] if folds else []), *map(_fold, folds, folds.values()),
        "== Way ==", *_transport_lines(session, chain),
    ]))


def content_of(schema: Any) -> PartitionSchema | None:
    """Return the schema of one partition, from the shape and dtype of its records; None if ``schema`` says nothing.

    Parameters
    ----------
    schema : (shape, dtype), or dict of them by field
        Of a record, or, where it has two dimensions or more, of a block. A number has the shape ().

    Raises
    ------
    PlanError
        If it is something else.

    Examples
    --------
    >>> content_of(((41,), "float32")).signatures
    (Signature(fields=(Field(name='', dtype='<f4', shape=(1, 41)),)),)
    """
    if schema is None:
        return None
    columns = schema if isinstance(schema, Mapping) else {"": schema}
    try:
        fields = tuple([Field(name, np.dtype(dtype).str, tuple(shape)) for name, (shape, dtype) in columns.items()])
    except (TypeError, ValueError) as error:
        raise PlanError(f"schema= is (shape, dtype), or a dict of them by field, not {schema!r}; of a number it is "
                        "((), \"float32\")") from error
    blocks = any(len(field.shape) > 1 for field in fields)
    parts = tuple([RecordPart(field.name, "array" if field.shape else "number", (field.dtype,)) for field in fields])
    if not blocks:
        fields = tuple([Field(field.name, field.dtype, (1, *field.shape)) for field in fields])
    return PartitionSchema(1, 0, RecordLayout("blocks" if blocks else "elements", False, parts), (Signature(fields),))


@brief
def translate(f: Callable[..., Any], *arguments: Any, schema: Any, of: str | None = None) -> str:
    """Return the CUDA C++ of a Python function as ``vmap`` translates it; needs neither Spark nor a worker.

    Parameters
    ----------
    f : callable
        As for :meth:`VRDD.vmap`; it is never called.
    *arguments
        Its arguments beside the element.
    schema : (shape, dtype), or dict of them by field
        What a record looks like; of two dimensions or more, a block, along whose leading axis the function is mapped.
        For a stencil, what a grid's block looks like.
    of : str, optional
        As for :meth:`VRDD.vmap`.

    Returns
    -------
    str
        The source of one module, with the kernel that runs the function.

    Raises
    ------
    TranslationError
        If the function has what the language lacks, or the types do not go together; at its line.
    PlanError
        If the schema is none.

    Examples
    --------
    >>> source = translate(lambda p, w: p * w, np.ones(40, "float32"), schema=((40,), "float32"))
    >>> "__global__" in source
    True
    """
    content = content_of(schema)
    if content is None:
        raise PlanError("schema= is needed: the shape and the dtype of a record, as in schema=((41,), \"float32\")")
    spec = record_map(f, arguments, of)
    if spec.function.definition.halo is not None:
        fields = content.signatures[0].fields
        dims = len(fields[0].shape) - (content.layout.kind == "elements")
        if not 1 <= dims <= 3:
            raise PlanError("a stencil's schema= is that of a grid's block, which has 1 to 3 axes, as in "
                            "schema=((64, 64), \"float32\")")
        cells = [ElementField(field.name, field.dtype) for field in fields]
        return specialise_stencil(spec.function, cells, spec.values, dims=dims).source
    lowering = Lowering((ops.PlanNode(ops.Send()), ops.PlanNode(ops.Map(spec))), None, FETCH)
    try:
        lowering.add(0, content)
    except TranslationError as error:
        raise error.nowhere() from error.__cause__
    lowering.finish()
    module, = lowering.modules.modules()
    return module.source


# -- the plan ---------------------------------------------------------------------------------------------------------

def _contents(session: Session, start: DatasetId | None, wanted: Explained) -> dict[int, PartitionSchema]:
    """Return the schemas of the partitions that the plan would start from, as far as they are known."""
    residency = session.residencies.get(start.number) if start else None
    if residency is not None and residency.places:
        return {partition: residency.contents[partition] for partition in sorted(residency.places)}
    return {} if wanted.schema is None else {0: wanted.schema}


def _lowered(chain: LogicalPlan, start: DatasetId | None, requested: RequestedOutput,
             contents: Mapping[int, PartitionSchema],
             shared_limit: int) -> Lowering | None:
    if not contents:
        return None
    work = lowering_for(chain, start, requested, contents.values(), shared_limit)
    for partition, content in contents.items():
        work.add(partition, content)
    work.finish()
    return work


def _rewritten(chain: LogicalPlan, start: DatasetId | None, requested: RequestedOutput,
               lowering: Lowering | None) -> Iterator[str]:
    """Yield the protocol's steps; for unknown content only the operations that become one step."""
    if lowering is not None:
        numbers = lowering.numbers()
        yield from (f"{type(step).__name__.removesuffix('Step')}{_details(step, numbers)}" for step in lowering.steps)
        return
    nodes = stages.after_start(chain, start)
    yield "Put" if start is None else f"Load({start.number})"
    for stage in stages.stages(nodes, requested.fold is not None):
        yield ", ".join(str(node.op) for node in nodes[stage.first:stage.stop])
    yield "Fetch" if requested.fold is None else "reduceByKey"


def _details(step: Step, numbers: Sequence[int]) -> str:
    vrdd = [str(numbers[step.slot])] if hasattr(step, "slot") else []
    shown = vrdd + [str(getattr(step, name)) for name in ("label", "how", "place") if hasattr(step, name)]
    return f"({', '.join(shown)})" if shown else ""


def _stencils_to_come(chain: LogicalPlan, start: DatasetId | None) -> list[str]:
    """Return a section that tells how to show stencils whose grid is not known yet; empty if there are none."""
    first = len(chain) - len(stages.after_start(chain, start))
    if not any(ops.needs_neighbours(chain, position) for position in range(first, len(chain))):
        return []
    return ["== Stencils ==", "known once the grid that they start from is loaded: call count() on that VRDD first"]


# -- kernels ----------------------------------------------------------------------------------------------------------

def _kernels(lowering: Lowering, wanted: Explained) -> Iterator[str]:
    """Yield the description of each kernel once: its launch, and its reads and writes of all partitions together."""
    modules = lowering.modules.modules()
    traffic: dict[tuple[int, str], list[int]] = {}
    for number, blocks in lowering.blocks():
        for launch, (read, written) in zip(lowering.launches[number], lowering.traffic(number), strict=True):
            key = launch.module, launch.kernel
            entry = traffic.setdefault(key, [0, 0, 0])
            traffic[key] = [entry[0] + blocks, entry[1] + blocks * read, entry[2] + blocks * written]
    shown = set()
    for launch in (launch for launches in lowering.launches for launch in launches):
        key = launch.module, launch.kernel
        if key in shown:
            continue
        shown.add(key)
        blocks, read, written = traffic.get(key, [0, 0, 0])
        partial = sum(each.width * ACCUMULATOR_BYTES[each.accumulator] for each in launch.partials)
        leaves = f"leaves {partial} of partial folds for each thread block" if partial else f"writes {written}"
        source = modules[launch.module].source
        matrix = ", matrix work" if is_matrix_work(source) else ", matrix fold" if is_matrix_fold(source) else ""
        yield (f"{launch.kernel} ({modules[launch.module].file}{matrix}): {_geometry(launch, blocks)}; "
               f"reads {read} bytes, {leaves}")
        if wanted.sources:
            yield from (f"    {line}" for line in modules[launch.module].source.splitlines())
    yield from dict.fromkeys(lowering.remarks())
    if not wanted.sources:
        yield "explain(sources=True) shows their sources"


def _kernels_of(action: str, lowering: Lowering | None, wanted: Explained) -> Iterator[str]:
    """Yield the section of a fold's kernels, if it ran; a fold may be fused with the kernel before it."""
    if lowering is not None and any(lowering.launches):
        yield f"== Kernels of {action}() =="
        yield from _kernels(lowering, wanted)


def _stencils(lowering: GridLowering, wanted: Explained) -> Iterator[str]:
    """Yield the kernels of functions of a grid's cells, each once, and the passes of loops over them."""
    yield from lowering.passes
    modules = lowering.modules.modules()
    for launch in dict.fromkeys(lowering.stencils):
        sides = enumerate(zip(launch.below, launch.above, strict=True))
        reach = ", ".join(f"{low} below and {high} above axis {axis}" for axis, (low, high) in sides if low or high)
        fields = ", ".join(each.name or "the grid" for each in launch.outputs)
        yield (f"{launch.kernel} ({modules[launch.module].file}): writes {fields}; {' x '.join(map(str, launch.tile))} "
               f"cells by {' x '.join(map(str, launch.block))} threads; reads {reach or 'the cell alone'}")
        if wanted.sources:
            yield from (f"    {line}" for line in modules[launch.module].source.splitlines())


def _geometry(launch: Launch, blocks: int) -> str:
    threads = " x ".join(map(str, launch.block))
    if not launch.tile:
        launches = "1 launch, for the one block," if blocks == 1 else f"{blocks} launches, one for each block,"
        return f"{launches} of {threads} threads a thread block"
    of = "1 block" if blocks == 1 else f"{blocks} blocks"
    return f"one launch on each device for {of}, {launch.tile} rows at a time by {threads} threads"


# -- data -------------------------------------------------------------------------------------------------------------

_WHERE = {"host": "host", "device": "device", TIERS: "device as far as it has room, else on host",
          DISK_TIERS: "device as far as it has room, else on host, else on disk"}
#: The tiers below devices.
_BELOW = ("host", "disk")


def _held(session: Session, chain: LogicalPlan) -> Iterator[str]:
    is_held = False
    for position, node in enumerate(chain):
        residency = session.residencies.get(node.cached.number) if node.cached else None
        if residency:
            is_held = True
            nbytes = sum(residency.contents[index].nbytes for index in residency.places)
            under_way = [sent.pending for _, sent in residency.pending if sent.pending is not None]
            pending = "" if all(each.done for each in under_way) else ", on their way"
            place = ops.place_of(chain[:position + 1])
            yield (f"VRDD {node.dataset.number} ({node.dataset.name}): {len(residency.places)} partitions "
                   f"held{pending}, {nbytes} bytes on {_WHERE[place]}")
            yield from _tiers(session, residency) if place in (TIERS, DISK_TIERS) else ()
    for table in tables_of(chain):
        yield f"argument: {table}"
    saved = [snapshot for snapshot in map(session.snapshots.find, [node.saved for node in reversed(chain)]) if snapshot]
    for snapshot in saved[:1]:
        copied = ", with a copy on another node" if snapshot.is_copied else ""
        yield (f"newest snapshot: taken {time.monotonic() - snapshot.began:.1f} s ago, in {snapshot.seconds:.3g} s, of "
               f"{snapshot.nbytes} bytes{copied}; after a loss the loop goes on from there")
    if not is_held:
        yield "nothing is cached; every action sends the records"


def _tiers(session: Session, residency: Residency) -> Iterator[str]:
    """Yield the counts of partitions on each device, in host memory and in files, as their workers answer."""
    counts: Counter[str] = Counter()
    streamed = 0
    for home in {home for home, _ in residency.places.values()}:
        try:
            _, schemas = session.workers.at(home).held(residency.cached.number)
        except VisparkError:        # which the next action mends
            continue
        for content in schemas.values():
            counts[content.place] += 1
            streamed += 0 if content.place not in _BELOW else content.nbytes - content.keys
    ordered = sorted(counts, key=lambda place: (_BELOW.index(place) if place in _BELOW else -1, place))
    tiers = [f"{counts[place]}{'' if number else f' of {counts.total()} partitions'} on {place}"
             for number, place in enumerate(ordered)]
    if tiers:
        yield ", ".join(tiers) + (f": streamed, {size(streamed)} a pass" if streamed else "")


def _moved(chain: LogicalPlan, start: DatasetId | None, lowering: Lowering | None,
           contents: Mapping[int, PartitionSchema]) -> Iterator[str]:
    """Yield the bytes that are copied between host and device, and to the driver."""
    if lowering is None:
        return
    position = next((index for index, node in enumerate(chain) if start and node.cached == start), 0)
    if ops.place_of(chain[:position + 1]) == "host" and any(lowering.launches):
        yield f"to the device: {sum(content.nbytes for content in contents.values())} bytes"
    if isinstance(lowering.fold, FoldByKeyStep):
        yield f"each worker sends {lowering.folded_bytes(lowering.fold)} bytes to the driver"
    else:
        yield f"collect() brings {sum(content.nbytes for content in lowering.results().values())} bytes to the driver"


# -- folds, and the way -----------------------------------------------------------------------------------------------

def _fold(action: str, fold: FoldStep | FoldByKeyStep | str | None) -> str:
    if fold is None:
        return f"{action}: in the workers, unless the records turn out not to allow it"
    if isinstance(fold, str):
        if fold is IN_DRIVER:
            return f"{action}: in the driver, which the records were brought to"
        return f"{action}: {fold}" if fold in _IN_WORKERS else f"{action}: a Spark job over recv(), as {fold}"
    folds = ", ".join(f"{each.operator} of {each.field!r}" if each.field else each.operator for each in fold.fields)
    over = f", over {fold.groups} keys from field {fold.key!r}" if isinstance(fold, FoldByKeyStep) else ""
    return f"{action}: in the workers{over}: {folds}"


def _transport_lines(session: Session, chain: LogicalPlan) -> Iterator[str]:
    if not any(node.cached for node in chain):
        yield "a Spark job: one request and one reply for each partition"
        return
    workers = session.workers.known()
    counts = Counter(worker.kind.label for worker in workers)
    ways = ", ".join(f"{counts[kind.label]} {kind.label}" for kind in transport_kinds.kinds() if counts[kind.label])
    way = "direct: one request and one reply for each worker, no Spark job"
    if relayed := [worker for worker in workers if not worker.direct]:
        which = "each worker" if len(relayed) == len(workers) else "each of the workers reached through Spark"
        way = f"relayed: one request and one reply for each worker, a Spark task for {which}"
    yield way + (f"; workers: {ways}" if ways else "")
    yield from (worker.refusal for worker in workers if worker.refusal)
    if len(workers) > 1 and ops.runs_together(chain, None):
        yield f"cells to other nodes: by {session.options.exchange}; gpu-worker status, on one of them, says over what"
    yield f"plans: {session.plans.made} worked out so far; a repeated one is sent as it is, with its values"
