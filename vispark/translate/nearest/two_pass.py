"""Kernels that find nearest centres by matrix work, in place of the translator's kernels by rows.

The device's side is ``vispark/nearest.h``. One kernel gives the labels, another folds the rows by them; both are for
rows of float32 or float64. What does not fit them keeps the translator's own kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vispark.translate.codegen.scalar.interface import (
    SHARED_LIMIT,
    ElementField,
    ElementSpec,
    KernelParameter,
    PreparingKernel,
    TableKernel,
    TracedCall,
)
from vispark.translate.codegen.scalar.target import by_schedule
from vispark.translate.codegen.scalar.warp_products import products_by_warps
from vispark.translate.ir.folding import Accumulated, Folding
from vispark.translate.ir.nodes import Capture, Constant, Function
from vispark.translate.nearest.one_pass import THREADS, TILE, Pair, Roles, jump, one_pass_for
from vispark.translate.nearest.partial_match import partially_matched
from vispark.translate.nearest.recognise import ArgumentFact, Nearest, Recognised, Row, leaves, recognise
from vispark.translate.nearest.split import LabelSplit, split

#: Fewer centres or columns are no matrix work; scores of more centres do not fit registers.
LEAST_CENTRES, LEAST_COLUMNS, MOST_CENTRES = 16, 32, 256
#: But as many sums leave the translator's kernel one warp a block, with sums in memory, and then fewer centres gain.
_MANY_SUMS, _LEAST_CENTRES_OF_MANY = 6_200, 9
#: The most centres that scores of fit registers beside all else, and the threads of a block then.
_THREADS = ((104, 512), (160, 384), (MOST_CENTRES, 256))
#: From so many centres on products take longer than rows of float32 on their way: one product, and more rows computed
#: again.
_LEAST_OF_ONE_PRODUCT = 96
#: Steps of rows on their way, and at most so many times two steps of the centres.
_AHEAD, _RING = 4, 5
#: Rows that are labelled before their sums are taken: as many numbers and labels of 2 bytes lie in shared memory.
_CHUNK = 8192
#: The most numbers of a row, beside the row itself and constants, that are folded by label.
MOST_VALUES = 8
#: Loads of rows under way in a thread while sums are taken.
_ROWS_AHEAD = 16
_HEADER = '#include "vispark/nearest.h"'
KINDS = {"float32": "float", "float64": "double"}
#: What sums of rows are kept in.
SUMS = {"float32": "double", "float64": "Twofold"}


def instead_of(kernel: TableKernel, calls: Sequence[TracedCall], record: ElementSpec, folding: Folding | None,
               shared_limit: int = SHARED_LIMIT) -> TableKernel:
    """Return the kernel by matrix work that gives what a kernel gives, or that kernel itself.

    Parameters
    ----------
    kernel : TableKernel
        What the translator wrote of the chain.
    calls, record, folding, shared_limit
        What it wrote it of and for.
    """
    row = row_of(calls[0], record) if len(calls) == 1 else None
    if row is None or (rows := np.dtype(row.dtype).name) not in KINDS:
        return kernel
    match = _recognised(described(calls[0].function), known_of(calls[0]))
    parameter = centres_of(calls[0], row, match.centres) if match else None
    if match is None or parameter is None:
        return kernel
    groups = folding.groups if folding and folding.key else None
    return _kernel(kernel, match.result, row.name, rows, parameter, groups, shared_limit) or kernel


def is_matrix_work(source: str) -> bool:
    """Return whether a kernel's source is one of those that find nearest centres by matrix work."""
    return _HEADER in source


def why_by_rows(call: TracedCall, record: ElementSpec, shared_limit: int = SHARED_LIMIT) -> str:
    """Return the reason why a function that finds the nearest centre is not computed by matrix work; empty if it is no
    such function.
    """
    row = row_of(call, record)
    search = described(call.function), known_of(call)
    match = _recognised(*search) if row else None
    seen = match.centres if match else _partially_matched(*search)
    centres = centres_of(call, row, seen) if row is not None and seen else None
    if seen is None or (row and centres is None):
        return ""
    if row is None or centres is None:
        return (f"matrix work is for one row of an element, and of the fields {', '.join(_named(call, record))} "
                "the function reads more, or no row")
    (count, columns), rows = centres.shape, np.dtype(row.dtype)
    parted = None if match else parted_of(*search)
    if match is None and parted is None:
        return ("matrix work gives the label, and what else is computed of the row, the label, the nearest centre and "
                "its distance; this function lets out more of the centres than that, or looks for them in two ways, by "
                "sorting, or by a loop that does not begin with the label 0 and infinity or the first centre's "
                "distance and go on by <")
    if rows.name not in KINDS:
        return f"matrix work is for rows of float32 or float64, and these are {rows}"
    nearest = match.nearest if match else Nearest(parted.nan, False) if parted else None
    assert nearest is not None
    if not _fold_for(count, columns, rows.name, "float32", nearest):
        return (f"{count} centres of {columns} numbers are too few or too many for matrix work, or the numbers no "
                f"multiple of {16 // rows.itemsize}")
    if shared_limit < SHARED_LIMIT and not _fold_for(count, columns, rows.name, "float32", nearest, shared_limit):
        return (f"matrix work on {count} centres of {columns} numbers needs more than the {shared_limit:,} bytes of "
                "shared memory that a thread block can have here")
    return (f"with reduceByKey(numKeys={count}) or more matrix work adds up rows, constants and up to {MOST_VALUES} "
            "numbers of each row by label: its keys are the label, or that and a constant, and no other arrays are "
            "folded")


def _named(call: TracedCall, record: ElementSpec) -> list[str]:
    """Return the record's fields that a call reads."""
    names = {parameter.name for parameter in call.function.definition.parameters}
    return [each.name for each in record.fields if each.name in names]


def row_of(call: TracedCall, record: ElementSpec) -> ElementField | None:
    """Return the row that a call's first parameter is, where that is all it reads of an element."""
    parameters = call.function.definition.parameters
    if len(record.fields) == 1 and not record.fields[0].name:
        field = record.fields[0]
    elif parameters and _named(call, record) == [parameters[0].name]:
        field = next(each for each in record.fields if each.name == parameters[0].name)
    else:
        return None
    return field if len(field.shape) == 1 else None


def centres_of(call: TracedCall, row: ElementField, place: tuple[str, int]) -> KernelParameter | None:
    """Return the centres of a call, where they go with its rows."""
    kind, number = place
    if kind == "argument" and number >= len(call.args):
        return None
    centres = np.asarray(call.args[number] if kind == "argument" else call.function.captures[number].value.array)
    if centres.ndim != 2 or centres.shape[1] != row.shape[0] or centres.dtype.name not in KINDS:
        return None
    return KernelParameter(kind, "", number, centres.dtype.name, centres.shape, True)


def known_of(call: TracedCall) -> tuple[ArgumentFact, ...]:
    """Return the parts of a call's arguments that the recognition of nearest centres depends on."""
    return tuple(each if type(each) is int else shape if len(shape := np.shape(each)) == 2 else None
                 for each in call.args)


def described(function: Function) -> Function:
    """Return a function without the contents of the arrays it captured."""
    return replace(function, captures=tuple(
        Capture(each.name, Constant(each.value.dtype, each.value.shape, b"", each.value.weak) if each.value.shape
                else each.value) for each in function.captures))


@functools.lru_cache(maxsize=128)
def _recognised(function: Function, arguments: tuple[ArgumentFact, ...]) -> Recognised | None:
    return recognise(function, arguments)


@functools.lru_cache(maxsize=128)
def parted_of(function: Function, arguments: tuple[ArgumentFact, ...]) -> LabelSplit | None:
    """Return a function's parts: its labels, and the rest."""
    return split(function, arguments)


@functools.lru_cache(maxsize=128)
def _partially_matched(function: Function, arguments: tuple[ArgumentFact, ...]) -> tuple[str, int] | None:
    return partially_matched(function, arguments)


@functools.lru_cache(maxsize=128)
def _kernel(kernel: TableKernel, result: object, field: str, rows: str, centres: KernelParameter, groups: int | None,
            shared_limit: int) -> TableKernel | None:
    parameters: tuple[KernelParameter, ...]
    count, columns = centres.shape
    nearest = next(each for each in leaves(result) if isinstance(each, Nearest))
    sizes = count, columns, rows, centres.dtype, nearest
    shape = _fold_for(*sizes, shared_limit) if groups else shape_for(*sizes, folds=False, shared_limit=shared_limit)
    if shape is None:
        return None
    row = KernelParameter("input", field, 0, rows, centres.shape[1:], True)
    if groups is None:
        if not isinstance(result, Nearest) or kernel.accumulated or len(kernel.outputs) != 1:
            return None
        ports = row, KernelParameter("output", kernel.outputs[0].name, 0, "int64", (), True)
        source, name, parameters = shape.labels(), "nearest_labels", (*ports, centres)
    else:
        stores = _stores(kernel.accumulated, result, SUMS[rows]) if groups == count else None
        if stores is None:
            return None
        source, name, parameters = shape.fold(kernel.accumulated, stores), "nearest_fold", (row, centres)
    return replace(kernel, source=source, name=name, parameters=parameters, block=shape.threads, shared=shape.shared,
                   tile=TILE if shape.way else shape.threads // 2, preparation=shape.preparation, cluster=shape.cluster,
                   waves=min(1.0, kernel.waves) if groups else 1.0)


def _stores(accumulated: Sequence[Accumulated], result: object, sums: str) -> tuple[str, ...] | None:
    """Return the store of each partial, in C++: "" for the sums of the rows, else the value for each group; None if
    these kernels cannot compute it. ``sums`` is the accumulator of the rows' sums.
    """
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], Nearest):
        return None
    parts = dict(paths(result[1], "1"))
    stores = []
    for one in accumulated:
        part = parts.get(one.field)
        if isinstance(part, Row):
            store = sums_store(one, sums)
        else:
            store = OF_KEYS.get(one.guard) if one.field == "0" else constant_store(one, part)
        if store is None:
            return None
        stores.append(store)
    return tuple(stores) if stores.count("") == 1 else None


OF_KEYS = {"": "count", "least": "least", "greatest": "greatest"}


def sums_store(one: Accumulated, sums: str) -> str | None:
    """Return "" where an accumulator is that of the rows' sums, which are of a type; else None."""
    return "" if (one.operator, one.accumulator, one.guard, one.of) == ("add", sums, "", "Value") else None


def constant_store(one: Accumulated, part: object) -> str | None:
    """Return the C++ value for each group of a sum of constants; None for other accumulators."""
    if one.operator != "add" or isinstance(part, bool):
        return None
    if isinstance(part, int) and abs(part) < 1 << 31:
        if (one.accumulator, one.guard) == ("long long", ""):
            return f"{part}ll * count"
        return f"{abs(part)}.0 * count" if (one.accumulator, one.guard) == ("double", "overflow") else None
    if isinstance(part, float) and (one.accumulator, one.guard) == ("Twofold", ""):
        value = f"({part!r})"
        return f"Twofold({value} * count, __fma_rn({value}, (double)count, -({value} * count)))"
    return None


def paths(result: object, path: str) -> list[tuple[str, object]]:
    if not isinstance(result, tuple):
        return [(path, result)]
    return [each for number, item in enumerate(result) for each in paths(item, f"{path}.{number}")]


# -- shapes -----------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class NearestShape:
    """All that shapes a kernel; ``nearest::Shape`` in C++.

    Attributes
    ----------
    centres, columns : int
        How many centres there are, and numbers in a row.
    rows, dtype : str
        The rows' dtype, and the centres'.
    nan : str
        As :class:`Nearest` has it.
    threads : int
        Threads of a block, of which each 128 take 64 rows at a time.
    ring : int
        Twice as many steps of 16 columns of the centres are in shared memory; 0 where all are, and nothing is prepared.
    ahead : int
        Steps of rows that are on their way.
    way : Roles, Pair or None
        What shapes a fold in one pass, on GPUs that can; others take two passes with the same launch.
    products : int
        Of two passes: 2 with both parts of a row, or 1 with the leading one, which leaves more rows open.
    """

    centres: int
    columns: int
    rows: str
    dtype: str
    nan: str
    threads: int
    ring: int
    ahead: int
    way: Roles | Pair | None = None
    products: int = 2

    @property
    def cluster(self) -> int:
        """Thread blocks of a work."""
        return self.way.cluster if self.way else 1

    @property
    def padded(self) -> int:
        """The centres that products are taken with."""
        return -(-self.centres // 8) * 8

    @property
    def steps(self) -> int:
        """Steps of 16 columns."""
        return -(-self.columns // 16)

    @property
    def shared(self) -> int:
        """Bytes of shared memory: at least those of ``SharedStorage``."""
        image = (2 * self.ring or self.steps) * self.padded * 32
        waiting = 5 if self.products == 1 and self.ring else 3
        lists = waiting * _CHUNK + self.centres * (self.threads // 32 * 4 + 4 + 8)
        nbytes = image + 8 * self._size * self.threads * self.ahead + 16 * max(1, self.ring) + lists + \
            16 * self.padded + 16 * self._size * self.steps
        return max(-(-(nbytes + 128) // 128) * 128, self.way.shared if self.way else 0)

    @property
    def preparation(self) -> PreparingKernel | None:
        """What is made of the centres first: their image, four numbers for each, and their mean."""
        if not self.ring:
            return None
        return PreparingKernel("nearest_centres", self.padded * (-(-self.steps // 2) * 64 + 16) +
                               16 * self._size * self.steps, self.padded // 8, 256)

    @property
    def _size(self) -> int:
        """Bytes of a row's number."""
        return np.dtype(self.rows).itemsize

    @property
    def _number(self) -> str:
        """The work's, in C++."""
        return "blockIdx.x" if self.cluster == 1 else f"VISPARK_WORK({self.cluster})"

    # -- sources ------------------------------------------------------------------------------------------------------

    def labels(self) -> str:
        """Return the kernel that gives the labels of the rows."""
        return self._source("nearest_labels", [], 2, [
            "Shape::labels(x, work.count, storage, image, centres, work.of<long long>(1, 1));"])

    def fold(self, accumulated: Sequence[Accumulated], stores: Sequence[str]) -> str:
        """Return the kernel that folds by label: the rows are added up, and of ``stores`` each is stored."""
        partials = [f"{one.accumulator}* __restrict__ partial_{number}" for number, one in enumerate(accumulated)]
        sums = stores.index("")
        body = [f"{SUMS[self.rows]}* const sums = partial_{sums} + {self._number} * {accumulated[sums].width}ll;",
                *self._either("if (!Way::fold(x, work.count, storage, centres, sums)) return;",
                              "Shape::fold(x, work.count, storage, image, centres, sums);"),
                f"nearest::for_each<{self.centres}>(storage, [&](int k, long long count) {{"]
        last = []
        for number, store in enumerate(stores):
            if store in ("least", "greatest"):
                last.append(f"partial_{number}[{self._number}] = nearest::{store}<{self.centres}>(storage);")
            elif store:
                body.append(f"    partial_{number}[{self._number} * {self.centres}ll + k] = {store};")
        if last:
            last = ["if (threadIdx.x == 0) {", *(f"    {line}" for line in last), "}"]
        return self._source("nearest_fold", partials, 1, [*body, "});", *last])

    def types(self) -> list[str]:
        """Return the C++ types of the kernel, with the code that they need."""
        numbers = (self.padded, self.centres, self.columns, self.threads, self.ring, _CHUNK, self.ahead, _ROWS_AHEAD)
        row, kind, nan = KINDS[self.rows], KINDS[self.dtype], f"nearest::{self.nan.upper()}"
        return [
            "#if VISPARK_WARPGROUPS",
            *(jump(self.way) if self.way else products_by_warps("Wgmma", self.padded, "k16.f32.f16.f16", "1, 1, 0")),
            "#endif", "",
            f"typedef nearest::Shape<{', '.join(map(str, numbers))}, {nan}, {row}, {kind}, {self.products}> Shape;",
            *self._either(f"typedef {self.way.type_of(nan, kind)} Way;" if self.way else "", "typedef Shape Way;"),
            f"static_assert(sizeof(Way::SharedStorage) <= {self.shared}, \"shared memory\");", ""]

    def preparing(self, declared: Sequence[str], centres: str) -> list[str]:
        """Return the kernel that prepares centres, if there is one; ``declared`` are the parameters beside the image.
        """
        if not self.ring:
            return []
        return ['extern "C" __global__ void __launch_bounds__(256)',
                f"nearest_centres({', '.join(['unsigned char* __restrict__ image', *declared])})", "{",
                f"    Shape::prepare(image, {centres});", "}", ""]

    def _either(self, one_pass: str, two: str) -> list[str]:
        """Return lines for the GPUs that take one pass, and for all others."""
        return [f"#if {self.way.where}", one_pass, "#else", two, "#endif"] if self.way else [two]

    def _source(self, name: str, partials: Sequence[str], ports: int, body: Sequence[str]) -> str:
        row, kind = KINDS[self.rows], KINDS[self.dtype]
        centres = f"const {kind}* __restrict__ centres"
        image = ["const unsigned char* __restrict__ image"] if self.ring else []
        declared = ["const long long* __restrict__ works", "void* const* __restrict__ ports", *partials, *image,
                    centres]
        clusters = f"VISPARK_CLUSTER({self.cluster}) " if self.cluster > 1 else ""
        lines = [
            _HEADER, "", *self.types(), *self.preparing([centres], "centres"),
            f'extern "C" __global__ void {clusters}__launch_bounds__({self.threads}, 1)',
            f"{name}({', '.join(declared)})", "{",
            "    extern __shared__ __align__(128) unsigned char memory[];",
            "    Way::SharedStorage& storage = *(Way::SharedStorage*)memory;",
            *([] if self.ring else ["    const unsigned char* const image = nullptr;"]),
            f"    const rows::Work work(works, ports, {ports}{f', {self._number}' if clusters else ''});",
            f"    const {row}* const x = work.of<const {row}>(0, {self.columns});",
            *by_schedule(["    if (threadIdx.x != 0) return;"]),
            *(line if line.startswith("#") else f"    {line}" for line in body), "}"]
        return "\n".join(lines) + "\n"


def _fold_for(centres: int, columns: int, rows: str, dtype: str, nearest: Nearest,
              shared_limit: int = SHARED_LIMIT) -> NearestShape | None:
    """Return the shape of a fold, in one pass if that is faster."""
    shape = one_pass(centres, columns, dtype, nearest, shared_limit) if rows == "float32" else None
    return shape or shape_for(centres, columns, rows, dtype, nearest, folds=True, shared_limit=shared_limit)


def one_pass(centres: int, columns: int, dtype: str, nearest: Nearest,
             shared_limit: int = SHARED_LIMIT) -> NearestShape | None:
    """Return the shape of one pass over rows of float32 for the numbers of centres and columns, or None if one pass
    gains nothing or has no room.
    """
    # It is for Hopper, whose thread blocks have no less than this.
    way = one_pass_for(centres, columns) if shared_limit >= SHARED_LIMIT else None
    shape = NearestShape(centres, columns, "float32", dtype, nearest.nan, THREADS, 0, _AHEAD, way) if way else None
    return shape if shape and shape.shared <= SHARED_LIMIT else None


def shape_for(centres: int, columns: int, rows: str, dtype: str, nearest: Nearest, *, folds: bool,
              shared_limit: int = SHARED_LIMIT) -> NearestShape | None:
    """Return the shape of matrix work for the numbers of centres and columns, or None if it gains nothing or has no
    room.
    """
    least = _LEAST_CENTRES_OF_MANY if folds and centres * columns > _MANY_SUMS else LEAST_CENTRES
    wide = 16 // np.dtype(rows).itemsize
    if not least <= centres <= MOST_CENTRES or columns < LEAST_COLUMNS or columns % wide:
        return None
    threads = next(threads for most, threads in _THREADS if centres <= most)
    products = 1 if rows == "float32" and centres >= _LEAST_OF_ONE_PRODUCT else 2
    for ahead in (_AHEAD, 3, 2) if rows == "float64" else (_AHEAD,):
        whole = NearestShape(centres, columns, rows, dtype, nearest.nan, threads, 0, ahead, products=products)
        if whole.shared <= shared_limit:
            return whole
    for ahead in (_AHEAD, 3, 2):
        for ring in range(_RING, 1, -1):
            shape = replace(whole, ring=ring, ahead=ahead)
            if 2 * ring <= whole.steps and shape.shared <= shared_limit:
                return shape
    return None
