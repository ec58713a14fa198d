"""Folds of records by the operators of ``fold.cu``: of all records, or inside each.

Each partition is folded on its device; the partial results are joined on the host in the order of the partitions. What
the works of a fused kernel leave is joined on its device first. The order of every step depends on sizes alone, so a
fold gives the same bits each time. Integers are folded in their own type; float32 is carried in float64, and sums of
float64 with what rounding takes from them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from gpu_worker.device.base import Buffer, Device, Source, Stream
from gpu_worker.execution.scratch import Scratch
from gpu_worker.memory.partition import Block, HeldArray, Partition, PieceOfPartition
from gpu_worker.protocol import messages
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.fold_operators import is_known, of_bools, operator_of
from gpu_worker.protocol.messages import Field, FieldFold, FoldInsideStep, FoldStep, Launch, MapFoldStep
from gpu_worker.protocol.payload import aligned, field_bytes

SOURCE = Source((Path(__file__).parent / "fold.cu").read_text(), file="fold.cu")

#: NumPy dtype (kind and size) to the C++ type of an element.
_ELEMENTS = {
    "f4": "float", "f8": "double", "b1": "unsigned char", "i1": "signed char", "i2": "short", "i4": "int",
    "i8": "long long", "u1": "unsigned char", "u2": "unsigned short", "u4": "unsigned int", "u8": "unsigned long long",
}
#: The C++ type of an accumulator to what it is on the host: a dtype, and how many of them.
_ACCUMULATORS = {element: (dtype, 1) for dtype, element in _ELEMENTS.items() if dtype != "b1"} | {"Twofold": ("f8", 2)}

_THREADS = 256
_MAX_CHUNKS = 256
_MIN_CHUNK = 4096
#: Chunks of wide rows are of about so many bytes, and of some rows at least.
_CHUNK_BYTES, _LEAST_CHUNK = 1 << 20, 32
#: By key: the shared memory that one block may have, what all partial results may take, and how many there may be.
_SHARED_BYTES = 46 * 1024
_PARTIAL_BYTES = 64 << 20
_MAX_PARTIALS = 4096
_MIN_ROWS = 32
#: Joining what works leave: accumulators from which neighbours are read 32 at a time, and blocks side by side.
_WIDE = 4096
_MAX_GRID = 65535


@dataclass(frozen=True)
class FoldedArray:
    """Folded field: of one record, or with the keys along its first axis."""

    field: Field
    values: np.ndarray
    magnitude: float
    ordered: bool


@dataclass(frozen=True)
class FoldResult:
    """Result of a fold over all partitions of a worker; ``counts`` has the number of records of each key, if there are
    keys.

    Where ``lies`` is given, its bytes are the reply's data, and ``offsets`` say where the fields are there, and behind
    them the counts.
    """

    count: int
    fields: tuple[FoldedArray, ...]
    counts: np.ndarray | None
    lies: np.ndarray | None = None
    offsets: Sequence[int] = ()


@dataclass
class FieldTotal:
    """Fold of one field of one partition; ``values`` are accumulators, of shape (elements, 1 or 2).

    Those that nothing is joined with are of the field's own dtype and shape, and lie at ``offset`` of what is copied
    out; below 0 they are accumulators.
    """

    how: FieldFold
    field: Field
    values: np.ndarray
    guards: np.ndarray | None
    offset: int = -1


@dataclass
class PartitionFold:
    """Fold of one partition, on its device until it is copied out and the stream is synchronized.

    Its index is -1 where it is the fold of several.
    """

    index: int
    count: int
    parts: list[FieldTotal]
    folder: Folder
    #: The records of each key, and where they lie in what is copied out.
    counts: np.ndarray | None = None
    counts_at: int = -1
    #: The least and the greatest key, with the partition whose they are, or -1.
    ranges: list[tuple[int, np.ndarray, np.ndarray]] = field(default_factory=list)
    #: How many keys there can be.
    groups: int = 0
    #: Whether the copies to the host have begun.
    is_out: bool = False

    def copy_out(self) -> None:
        """Start copying to the host: after the kernels of all partitions, as a copy may wait for those before it."""
        self.is_out = True
        for target, source in self.folder.results:
            self.folder.device.copy_out(target.reshape(-1).view(np.uint8), source, stream=self.folder.stream)

    def close(self) -> None:
        while self.folder.buffers:
            self.folder.buffers.pop().close()


def enqueue(fold: Callable[[Sequence[Block], PartitionFold], None], value: Partition,
            folder: Folder) -> PartitionFold | None:
    """Fold one partition on its device, by ``folder``'s launches; do nothing if it has no records.

    ``fold`` is :func:`all_records` of a step.

    Raises
    ------
    PlanError
        If the records have a type without a kernel, or blocks of different shapes.
    """
    blocks = [block for block in value.blocks if block]
    if not value.count or not blocks:
        return None
    signatures = {tuple(array.field for array in block) for block in blocks}
    if len(signatures) > 1:
        raise PlanError("blocks of different shapes or dtypes cannot be folded on the device")
    partial = PartitionFold(value.index, value.count, [], folder)
    fold(blocks, partial)
    return partial


def all_records(step: FoldStep, blocks: Sequence[Block], partial: PartitionFold) -> None:
    """Enqueue the fold of all records of a partition's blocks into one."""
    folder, piece = partial.folder, partial.folder.of_partition
    chunk = chunk_of([array.field for array in blocks[0]], piece.whole if piece else 0) if step.over == "rows" else 0
    for arrays in zip(*blocks, strict=True):
        how, described = field_fold(step.fields, arrays[0].field), arrays[0].field
        shape = described.shape[1:] if step.over == "rows" else described.shape
        fold = functools.partial(folder.rows, arrays[0], chunk=chunk) if step.over == "rows" else \
            functools.partial(folder.blocks, arrays)
        partial.parts.append(_part(how, replace(described, shape=shape), fold))


def join(partials: Sequence[PartitionFold]) -> FoldResult | None:
    """Join the partitions' partial results, in order; return None if no partition had a record.

    Raises
    ------
    PlanError
        If the partitions' records differ in shape or dtype, or have keys that are out of range.
    """
    if not partials:
        return None
    for partial in partials:
        check_keys(partial)
    described = [part.field for part in partials[0].parts]
    if any([part.field for part in partial.parts] != described for partial in partials):
        raise PlanError("partitions whose records differ in shape or dtype cannot be folded on the device")
    if all(part.offset >= 0 for part in partials[0].parts):
        return _unjoined(partials[0])
    fields = tuple(_joined(parts) for parts in zip(*[partial.parts for partial in partials], strict=True))
    counts = None if partials[0].counts is None else np.sum([partial.counts[:, 0] for partial in partials
                                                                   if partial.counts is not None], axis=0)
    return FoldResult(sum(partial.count for partial in partials), fields, counts)


def _unjoined(partial: PartitionFold) -> FoldResult:
    """Return a single complete partial result in the memory that it was copied out to, without another copy."""
    (host, _), = partial.folder.results
    fields = tuple([FoldedArray(part.field, part.values, *guarded([part])) for part in partial.parts])
    offsets = [part.offset for part in partial.parts]
    counts = None if partial.counts is None else partial.counts[:, 0]
    return FoldResult(partial.count, fields, counts, host, (*offsets, partial.counts_at))


def fold_inside(step: FoldInsideStep, block: Block, device: Device, stream: Stream,
                scratch: Scratch) -> tuple[Block, list[Buffer]]:
    """Fold each record of a block along its leading axis.

    Returns
    -------
    block, buffers
        The results, and memory that is free for later work on the stream.

    Raises
    ------
    PlanError
        If there is a type without a kernel, or no axis.
    """
    folder = Folder(device, stream, scratch)
    axis = 1 if step.over == "rows" else 0
    results = []
    for array in block:
        described = array.field
        if len(described.shape) <= axis:
            raise PlanError(f"there is nothing to fold inside records of shape {described.shape[axis:]}")
        shape = described.shape[:axis] + described.shape[axis + 1:]
        result = HeldArray(replace(described, shape=shape))
        result.buffer = scratch.allocate(result.nbytes, device, stream)
        results.append(result)
        if result.nbytes:
            folder.axis(array, result.buffer, element_fold(field_fold(step.fields, described), described), axis)
    return tuple(results), folder.buffers


def left_by_works(step: MapFoldStep, launch: Launch, left: Sequence[Left], folder: Folder, index: int,
                  count: int) -> PartitionFold:
    """Return the partial result of a launch's ``partials``, joined; valid once they are copied out."""
    found = PartitionFold(index, count, [], folder)
    named = {(each.field, each.guard): (each, one) for each, one in zip(launch.partials, left, strict=True)}
    for described in launch.outputs:
        each, one = named[described.name, ""]
        guard = next((guard for name, guard in named if name == described.name and guard), "")
        how = FieldFold(described.name, each.operator, guard)
        values = one.values.reshape(described.shape) if one.is_result else one.values
        found.parts.append(FieldTotal(how, described, values, named[described.name, guard][1].values if guard else None,
                                      one.offset if one.is_result else -1))
    if step.how == "key":
        counts = named[step.key, ""][1]
        found.counts, found.counts_at = counts.values, counts.offset
        found.ranges = [(index, named[step.key, "least"][1].values, named[step.key, "greatest"][1].values)]
        found.groups = step.groups
    return found


def results_of(launch: Launch) -> list[str]:
    """Return the dtype of the output field that each of a launch's ``partials`` holds; "" for partials of no field."""
    dtypes = {described.name: described.dtype for described in launch.outputs}
    return ["" if each.guard else dtypes.get(each.field, "") for each in launch.partials]


def needs_no_join(partials: Sequence[PartitionFold]) -> bool:
    """Return whether the memory copied out is the result already: :func:`join` then gives the same for each pass,
    except for guards.
    """
    return len(partials) == 1 and all(part.offset >= 0 for part in partials[0].parts)


def looked_at(partial: PartitionFold) -> list[np.ndarray]:
    """Return the arrays of a partial result that the host reads (keys and guards), if the rest is returned unchanged.
    """
    return [each for _, *extremes in partial.ranges for each in extremes] + \
        [part.guards for part in partial.parts if part.guards is not None]


def check_keys(partial: PartitionFold) -> None:
    """Raise PlanError if a record's key, as it was copied out, is out of range."""
    for index, *extremes in partial.ranges:
        least, greatest = [int(each[0, 0]) for each in extremes]
        wrong = least if least < 0 else greatest
        if not 0 <= wrong < partial.groups:
            whose = f" of partition {index}" if index >= 0 else ""
            raise PlanError(f"a record{whose} has the key {wrong}, and numKeys={partial.groups} promises keys in "
                            f"[0, {partial.groups})")


def field_fold(folds: Sequence[FieldFold], described: Field) -> FieldFold:
    """Return the fold of a field: the one of its name, or else the one without a name, with its operator checked."""
    named = {each.field: each for each in folds}
    how = named.get(described.name) or named.get("")
    if how is None:
        raise PlanError(f"the plan does not say how to fold field {described.name!r}")
    operator = operator_of(how.operator)
    if np.dtype(described.dtype).kind == "b" and not how.result:
        how = replace(how, operator=of_bools(operator.name))
    return replace(how, field=described.name)


@dataclass(frozen=True)
class ElementFold:
    """Fold in C++: the functor, the part of an element that is folded, and the types of elements and accumulators."""

    functor: str
    of: str
    element: str
    carried: str
    parts: int = 1

    @property
    def onward(self) -> ElementFold:
        """The fold of this operation's own results."""
        return replace(self, of="Value", element=self.carried)


def element_fold(how: FieldFold, described: Field) -> ElementFold:
    dtype = np.dtype(described.dtype)
    if how.result and how.result not in _ELEMENTS:
        raise PlanError(f"there is no fold {how.operator!r} with results of {how.result!r}")
    operator = operator_of(how.operator)
    functor = operator.functor
    code = f"f{dtype.itemsize // 2}" if dtype.kind == "c" else _code(dtype)
    if code not in _ELEMENTS or dtype.kind not in operator.kinds:
        raise PlanError(f"no fold {how.operator} for {dtype} on the device")
    element = _ELEMENTS[code]
    carried = _ELEMENTS[how.result] if how.result else {"float": "double"}.get(element, element)
    if carried == "double" and functor == "Add" and (element != "float"):
        carried = "Twofold"
    return ElementFold(functor, "Value", element, carried, 2 if dtype.kind == "c" else 1)


def element_of(described: Field) -> str:
    """Return the C++ type of the elements of a field of numbers."""
    return _ELEMENTS[_code(np.dtype(described.dtype))]


def _code(dtype: np.dtype) -> str:
    return f"{dtype.kind}{dtype.itemsize}"


def _part(how: FieldFold, described: Field, fold: Callable[[ElementFold], np.ndarray]) -> FieldTotal:
    operation = element_fold(how, described)
    guard = guard_fold(how, operation)
    return FieldTotal(how, described, fold(operation), None if guard is None else fold(guard))


def guard_fold(how: FieldFold, operation: ElementFold) -> ElementFold | None:
    """Return the fold that says whether another one is exact: of the sizes, or of how many are NaN; None if it is."""
    if how.guard == "overflow":
        product = operation.functor == "Multiply"
        return replace(operation, functor="Multiply" if product else "Add", of="SizeOrOne" if product else "Size",
                       carried="double")
    return replace(operation, functor="Add", of="IsNan", carried="double") if how.guard == "nan" else None


def _joined(parts: Sequence[FieldTotal]) -> FoldedArray:
    how, described = parts[0].how, parts[0].field
    ufunc = getattr(np, operator_of(how.operator).ufunc)
    with np.errstate(all="ignore"):
        if parts[0].values.shape[1] == 2:
            values = _sum([part.values for part in parts])
        else:
            values = functools.reduce(ufunc, [part.values[:, 0] for part in parts])
        dtype = np.dtype(how.result or described.dtype)
        values = values.view(np.complex128).astype(dtype) if dtype.kind == "c" else values.astype(dtype)
    return FoldedArray(Field(described.name, dtype.str, described.shape), values.reshape(described.shape),
                       *guarded(parts))


def guarded(parts: Sequence[FieldTotal]) -> tuple[float, bool]:
    """Return the largest magnitude that an integer fold may have reached, and whether the data is free of the NaNs that
    the fold guards against.
    """
    how, magnitude = parts[0].how, 0.0
    if how.guard == "overflow":
        guards = parts[0].guards
        if len(parts) > 1:
            join_guards = np.multiply if how.operator == "multiply" else np.add
            with np.errstate(all="ignore"):
                guards = functools.reduce(join_guards, [part.guards for part in parts if part.guards is not None])
        assert guards is not None
        magnitude = float(guards.max(initial=0.0))
    return magnitude, how.guard != "nan" or not any(part.guards is not None and part.guards.any() for part in parts)


def _sum(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sums that Twofolds represent, added as fold.cu adds them."""
    total, lost = parts[0][:, 0], parts[0][:, 1]
    for part in parts[1:]:
        added = total + part[:, 0]
        virtual = added - total
        lost = lost + part[:, 1] + ((total - (added - virtual)) + (part[:, 0] - virtual))
        total = added
    return np.where((lost == 0) | ~np.isfinite(total), total, total + lost)


@dataclass(frozen=True)
class Left:
    """Joined accumulators of one array that thread blocks left: elements of a result, or accumulators still to join."""

    values: np.ndarray
    offset: int
    is_result: bool


@dataclass
class Folder:
    """Launches of one partition's folds, their memory, and the results to copy out."""

    device: Device
    stream: Stream
    scratch: Scratch
    #: Which piece of the partition it folds, where that comes in pieces.
    of_partition: PieceOfPartition | None = None
    buffers: list[Buffer] = field(default_factory=list)
    results: list[tuple[np.ndarray, Buffer]] = field(default_factory=list)

    def rows(self, array: HeldArray, operation: ElementFold, chunk: int = 0) -> np.ndarray:
        """Fold an array along its first axis, so many rows by themselves; 0 for as many as :func:`chunk_of` says."""
        return self.out(*self.rows_on_device(array, operation, chunk), operation)

    def rows_on_device(self, array: HeldArray, operation: ElementFold, chunk: int = 0) -> tuple[Buffer, int]:
        """Fold an array along its first axis into accumulators on the device; return these, and how many there are."""
        columns = math.prod(array.field.shape[1:]) * operation.parts
        extents = array.field.shape[0], columns, chunk or chunk_of([array.field])
        return self._fold_rows(array.on_device, extents, operation), columns

    def blocks(self, arrays: Sequence[HeldArray], operation: ElementFold) -> np.ndarray:
        """Fold arrays of one shape, element by element."""
        size = math.prod(arrays[0].field.shape) * operation.parts
        target = self._allocate(size, operation.carried)
        kernel = self.device.compile(SOURCE, f"fold_into<{operation.functor}, {operation.of}, {operation.element}, "
                                             f"{operation.carried}>")
        for index, array in enumerate(arrays):
            self.device.launch(kernel, _grid(size), (_THREADS,),
                               [array.on_device, target, np.int64(size), np.int32(index == 0)], stream=self.stream)
        return self.out(target, size, operation)

    def by_key(self, keys: HeldArray, array: HeldArray, groups: int, operation: ElementFold) -> Buffer:
        """Fold the rows of an array that have the same key; the accumulators lie one after the other."""
        rows, columns = array.field.shape[0], math.prod(array.field.shape[1:]) * operation.parts
        if not columns:
            return self._take(0)
        size = _itemsize(operation.carried)
        across, high, staged = _lanes(groups, columns, size)
        partials = min(_MAX_PARTIALS, -(-rows // _MIN_ROWS), _PARTIAL_BYTES // (groups * columns * size))
        chunk = -(-rows // max(1, partials // high))
        chunks = -(-rows // chunk)
        parts = self._allocate(chunks * high * groups * columns, operation.carried)
        key = _ELEMENTS[_code(np.dtype(keys.field.dtype))]
        kernel = self.device.compile(SOURCE, f"fold_by_key<{operation.functor}, {operation.of}, {operation.element}, "
                                             f"{operation.carried}, {key}>")
        self.device.launch(kernel, (-(-columns // across), chunks), (across, high), [
            keys.on_device, array.on_device, parts, np.int64(rows), np.int64(columns), np.int64(groups),
                                                                                     np.int64(chunk),
            np.int32(staged)], shared=across * high * groups * size if staged else 0, stream=self.stream)
        if chunks * high == 1:
            return parts
        extents = chunks * high, groups * columns, _chunk(chunks * high, _MIN_CHUNK)
        joined = self._fold_rows(parts, extents, operation.onward)
        self._give(parts)
        return joined

    def add(self, target: Buffer, other: Buffer, elements: int, operation: ElementFold) -> None:
        """Join accumulators with others, which later work may have; as many of each."""
        if not elements:
            return
        kernel = self.device.compile(SOURCE, f"fold_into<{operation.functor}, Value, {operation.carried}, "
                                             f"{operation.carried}>")
        self.device.launch(kernel, _grid(elements), (_THREADS,), [other, target, np.int64(elements), np.int32(0)],
                           stream=self.stream)
        self._give(other)

    def settle(self, source: Buffer, elements: int, operation: ElementFold, dtype: str, target: Buffer) -> None:
        """Write accumulators as elements of a dtype, of complex numbers their parts; later work may have the former."""
        given = np.dtype(dtype)
        element = _ELEMENTS[f"f{given.itemsize // 2}" if given.kind == "c" else _code(given)]
        if element == operation.carried:
            self.move(source, target)
            return
        if elements:
            kernel = self.device.compile(SOURCE, f"settle<{operation.carried}, {element}>")
            self.device.launch(kernel, _grid(elements), (_THREADS,), [source, target, np.int64(elements)],
                               stream=self.stream)
        self._give(source)

    def move(self, source: Buffer, target: Buffer) -> None:
        """Copy memory of :meth:`by_key` to other memory; later work may have it."""
        self.device.copy_across(target, source.part(0, target.nbytes), stream=self.stream)
        self._give(source)

    def axis(self, array: HeldArray, target: Buffer, operation: ElementFold, axis: int) -> None:
        """Fold an array along its first or second axis, into its own type."""
        shape = array.field.shape
        extent, inner = shape[axis], math.prod(shape[axis + 1:]) * operation.parts
        outer = math.prod(shape[:axis])
        if outer == 1 and extent > _MIN_CHUNK:
            folded = self._fold_rows(array.on_device, (extent, inner, _chunk(extent, _MIN_CHUNK)), operation)
            kernel = self.device.compile(SOURCE, f"settle<{operation.carried}, {operation.element}>")
            self.device.launch(kernel, _grid(inner), (_THREADS,), [folded, target, np.int64(inner)],
                               stream=self.stream)
            return
        lanes = 32 if inner == 1 else 1
        kernel = self.device.compile(SOURCE, f"fold_axis<{operation.functor}, {operation.element}, "
                                             f"{operation.carried}, {lanes}>")
        self.device.launch(kernel, (-(-outer * inner * lanes // _THREADS),), (_THREADS,), [
            array.on_device, target, np.int64(outer), np.int64(extent), np.int64(inner)], stream=self.stream)

    # -- what works leave ---------------------------------------------------------------------------------------------

    def accumulators(self, partial: messages.Accumulators, works: int) -> Buffer:
        """Return memory for the accumulators of works."""
        if partial.accumulator not in _ACCUMULATORS or not is_known(partial.operator):
            raise PlanError(f"no fold {partial.operator!r} in {partial.accumulator!r} on the device")
        return self._allocate(works * partial.width, partial.accumulator)

    def result(self, partials: Sequence[messages.Accumulators], dtypes: Sequence[str]) -> tuple[list[int], list[Left]]:
        """Reserve memory as :meth:`piece` does; return device addresses and host parts."""
        buffer, found = self.piece(partials, dtypes)
        return [buffer.address + one.offset for one in found], found

    def piece(self, partials: Sequence[messages.Accumulators], dtypes: Sequence[str]) -> tuple[Buffer, list[Left]]:
        """Reserve one piece of device and host memory for joined accumulators; return it, and their places.

        Those with a dtype become elements of it.
        """
        sizes = [_element_bytes(dtype) * partial.width if dtype else partial.width * _itemsize(partial.accumulator)
                 for partial, dtype in zip(partials, dtypes, strict=True)]
        offsets = list(itertools.accumulate(map(aligned, sizes), initial=0))
        buffer, host = self._take(offsets[-1]), self.scratch.host(offsets[-1], self.device)
        self.results.append((host, buffer))
        found = []
        for partial, of, start, nbytes in zip(partials, dtypes, offsets, sizes, strict=False):
            dtype, width = _ACCUMULATORS[partial.accumulator]
            values = host[start:start + nbytes]
            found.append(Left(values.view(of), start, True) if of else
                         Left(values.view(dtype).reshape(partial.width, width), start, False))
        return buffer, found

    def join(self, partial: messages.Accumulators, left: Buffer, table: tuple[int, int], segments: int,
             dtype: str = "") -> None:
        """Join the accumulators of works, of one array.

        Parameters
        ----------
        partial : PartitionFold
            What they are.
        left : Buffer
            Where they are.
        table : tuple of int
            The addresses of where each segment's works begin, and of where the result of each is to be.
        segments : int
            How many of them there are.
        dtype : str
            The dtype of the results; left out, they are accumulators.
        """
        across = min(32 if partial.width >= _WIDE else 8, _across(partial.width))
        element = partial.accumulator
        if dtype:
            given = np.dtype(dtype)
            element = _ELEMENTS[f"f{given.itemsize // 2}" if given.kind == "c" else _code(given)]
        functor = operator_of(partial.operator).functor
        kernel = self.device.compile(SOURCE, f"join_works<{functor}, {partial.accumulator}, {element}, {across}>")
        grid = segments, max(1, min(_MAX_GRID, -(-partial.width // across)))
        self.device.launch(kernel, grid, (across, _THREADS // across), [
            left, np.uint64(table[0]), np.uint64(table[1]), np.int64(partial.width)], stream=self.stream)

    # -- arrays -------------------------------------------------------------------------------------------------------

    def _fold_rows(self, source: Buffer, extents: tuple[int, int, int], operation: ElementFold) -> Buffer:
        rows, columns, chunk = extents
        parts = self._allocate(-(-rows // chunk) * columns, operation.carried)
        self._launch_rows(source, parts, operation, extents)
        return self._fold_chunks(parts, -(-rows // chunk), columns, operation)

    def _fold_chunks(self, parts: Buffer, chunks: int, columns: int, operation: ElementFold) -> Buffer:
        """Fold what was left of each chunk of rows."""
        if chunks == 1:
            return parts
        target = self._allocate(columns, operation.carried)
        self._launch_rows(parts, target, operation.onward, (chunks, columns, chunks))
        return target

    def _launch_rows(self, source: Buffer, target: Buffer, operation: ElementFold,
                     extents: tuple[int, int, int]) -> None:
        """Fold each chunk of some rows into a row of ``target``."""
        rows, columns, chunk = extents
        chunks = -(-rows // chunk)
        across = _across(columns)
        kernel = self.device.compile(SOURCE, f"fold_rows<{operation.functor}, {operation.of}, {operation.element}, "
                                             f"{operation.carried}, {across}>")
        self.device.launch(kernel, (max(1, -(-columns // across)), chunks), (across, _THREADS // across),
                           [source, target, np.int64(rows), np.int64(columns), np.int64(chunk)], stream=self.stream)

    def _allocate(self, elements: int, carried: str) -> Buffer:
        return self._take(elements * _itemsize(carried))

    def _take(self, nbytes: int) -> Buffer:
        buffer = self.scratch.allocate(nbytes, self.device, self.stream)
        self.buffers.append(buffer)
        return buffer

    def _give(self, buffer: Buffer) -> None:
        """Let later work of the stream have memory of :meth:`_take`."""
        self.buffers.remove(buffer)
        self.scratch.recycle(buffer, self.stream)

    def out(self, source: Buffer, elements: int, operation: ElementFold) -> np.ndarray:
        """Reserve host memory for accumulators, to be copied out; return it."""
        dtype, width = _ACCUMULATORS[operation.carried]
        values = self.scratch.host(elements * _itemsize(operation.carried), self.device).view(dtype)
        values = values.reshape(elements, width)
        self.results.append((values, source))
        return values


def accumulator_bytes(partial: messages.Accumulators) -> int:
    """Return the bytes of the accumulators that a work leaves; 0 of those that are not known."""
    dtype, width = _ACCUMULATORS.get(partial.accumulator, ("u1", 0))
    return partial.width * np.dtype(dtype).itemsize * width


def joining(partial: messages.Accumulators) -> ElementFold:
    """Return the fold that joins accumulators."""
    return ElementFold(operator_of(partial.operator).functor, "Value", partial.accumulator, partial.accumulator)


def chunk_of(fields: Sequence[Field], rows: int = 0) -> int:
    """Return the number of rows of a block that are folded by themselves, before what they leave is: fewer where they
    are wide, and more where there are many. Of a piece of a block ``rows`` are the block's.
    """
    widest = max([field_bytes(each) // max(each.shape[0], 1) for each in fields], default=0)
    return _chunk(rows or fields[0].shape[0], max(_LEAST_CHUNK, min(_MIN_CHUNK, _CHUNK_BYTES // max(widest, 1))))


def _chunk(rows: int, least: int) -> int:
    return max(least, -(-rows // _MAX_CHUNKS))


def _element_bytes(dtype: str) -> int:
    """Return the bytes of an accumulator's element; of a complex number those of a part."""
    given = np.dtype(dtype)
    return given.itemsize // 2 if given.kind == "c" else given.itemsize


def _itemsize(carried: str) -> int:
    dtype, width = _ACCUMULATORS[carried]
    return np.dtype(dtype).itemsize * width


def _across(columns: int) -> int:
    """Return the number of threads side by side, a power of two."""
    return min(32, 1 << max(columns - 1, 0).bit_length())


def _grid(size: int) -> tuple[int]:
    return (max(1, min(1024, -(-size // _THREADS))),)


def _lanes(groups: int, columns: int, size: int) -> tuple[int, int, bool]:
    """Return a block's threads side by side and above each other, and whether their groups fit shared memory."""
    across = _across(columns)
    high = _THREADS // across
    while high > 1 and across * high * groups * size > _SHARED_BYTES:
        high //= 2
    if across * high * groups * size <= _SHARED_BYTES:
        return across, high, True
    return across, max(1, min(_THREADS // across, _PARTIAL_BYTES // (groups * columns * size))), False
