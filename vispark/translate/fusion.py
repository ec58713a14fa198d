"""Fusion of a chain of functions, and of the fold behind it where there is one, into one kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vispark.translate.codegen.emitter import Serial
from vispark.translate.codegen.scalar.interface import SHARED_LIMIT, ElementSpec, TableKernel, TracedCall
from vispark.translate.codegen.scalar.scalars import NeedsStatic
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.folding import Accumulated, Folding, accumulated, of_keys
from vispark.translate.ir.source_text import at_definition
from vispark.translate.ir.types import Scalar
from vispark.translate.kernels import matrix_fold, sorted_fold
from vispark.translate.kernels.block_fold import BlockFold, block_table, by_roles
from vispark.translate.kernels.group_fold import by_groups
from vispark.translate.kernels.keyed_fold import KeyedFrame
from vispark.translate.kernels.outer_sums import LEAST_ITEMS, NotFactored, OuterSum
from vispark.translate.kernels.row_function import (
    ArgumentType,
    InputPlace,
    Link,
    Port,
    RowFunction,
    RowWriter,
    givens,
    links_of,
    values_of,
)
from vispark.translate.kernels.row_kernel import AccumulatedField, RowKernel
from vispark.translate.kernels.schedule import (
    WARP,
    KeyCells,
    Table,
    cell_bytes,
    in_workspaces,
    keyed_table,
    lanes_for,
    lanes_for_key,
    table_for,
    table_with_cells,
    usable,
)
from vispark.translate.nearest.fused_rest import by_labels
from vispark.translate.nearest.two_pass import instead_of

#: Thread blocks of a map for each multiprocessor: many, as then those that run at one time are near each other in
#: memory, which it likes where it is both read and written.
_WAVES = 256.0
#: The most bytes that the works of a fold by key leave on a device, and the multiprocessors of a large one.
_PARTIAL_BYTES = 256 << 20
_MULTIPROCESSORS = 132
#: The most threads that share a row where cells are in memory: several rows of a warp then wait for it at once.
_LANES_IN_MEMORY = 4


def fuse(calls: Sequence[TracedCall], record: ElementSpec, *, wanted: frozenset[str] | None = None,
         folding: Folding | None = None, shared_limit: int = SHARED_LIMIT) -> TableKernel:
    """Return the kernel of a chain of traced functions, for elements and arguments of given dtypes and shapes.

    Parameters
    ----------
    calls : sequence of TracedCall
        The functions with their arguments, in order; what one gives is the next one's element, as it would be with an
        array between them. The arguments' values count only where a Python int shapes the code, as in ``np.zeros(k)``.
    record : ElementSpec
        What an element of the first one is.
    wanted : frozenset of str, optional
        The outputs to compute, and to fold where there is a fold, by name; all if left out.
    folding : Folding, optional
        What the last function's results are folded into.
    shared_limit : int
        The bytes of shared memory that a thread block can have where it runs.

    Returns
    -------
    TableKernel
        Equal for equal types, whatever the values are.

    Raises
    ------
    TranslationError
        If the types do not go together; at the user's line.
    """
    definition = calls[0].function.definition
    for call in calls:
        if call.function.definition.halo is not None:
            raise at_definition(call.function.definition, "a stencil needs a Grid: its neighbours are other cells")
    values = values_of(calls)
    statics = {place: value.number for place, value in values.items()
               if not value.shape and value.weak and np.dtype(value.dtype) == np.bool_}
    while True:
        try:
            kernel = _kernel(links_of(calls), record, givens(values), tuple(statics.items()), wanted, folding,
                             shared_limit)
            if kernel.workspace:
                return kernel
            faster = instead_of(kernel, calls, record, folding, shared_limit)
            return faster if faster is not kernel else by_labels(kernel, calls, record, wanted, folding, shared_limit)
        except NeedsStatic as needed:
            statics |= {place: values[place].number for place in needed.sources}
        except Refusal as error:
            raise at_definition(definition, str(error)) from error


@functools.lru_cache(maxsize=512)
def _kernel(links: tuple[Link, ...], record: ElementSpec, arguments: tuple[tuple[InputPlace, ArgumentType], ...],
            statics: tuple[tuple[InputPlace, Any], ...], wanted: frozenset[str] | None,
            folding: Folding | None, shared_limit: int) -> TableKernel:
    """Write a kernel, once for arguments of the same types: a chain with other values gives the same kernel."""
    def written(lanes: int, multiplied: bool, apart: frozenset[str] | None = None,
                wanted: frozenset[str] | None = wanted, least: int = LEAST_ITEMS) -> RowFunction:
        return RowWriter(links, record, dict(arguments), dict(statics), wanted, folding is not None,
                         lanes, multiplied, apart, least).write()

    if folding is not None and not folding.key:
        for multiplied in (True, False):
            kernel = _of_matrices(functools.partial(written, multiplied=multiplied), folding, shared_limit)
            if kernel is not None:
                return kernel
    for multiplied in (True, False):
        kernel = _of_rows(functools.partial(written, multiplied=multiplied), folding, shared_limit)
        if kernel is not None:
            return kernel
    raise AssertionError("rows that nothing is multiplied with have a kernel")


def _of_rows(written: Callable[[int], RowFunction], folding: Folding | None, shared_limit: int) -> TableKernel | None:
    """Return the kernel around a row function; None if rows that are to be multiplied do not fit shared memory."""
    host = written(1)
    if folding and folding.key:
        return _by_key(host, written, folding, shared_limit)
    folded = _folded(host, folding) if folding else ()
    every = tuple(one for each in folded for one in each.accumulated)
    rows = [(port.count, port.nbytes) for port in (*host.read, *(() if folding else host.outputs))]
    if host.scratch:
        if host.products:
            return None
        table = in_workspaces(host, every, shared_limit)
        frame = RowKernel(f"{host.name}_{'fold' if folding else 'kernel'}", host, host, table, folded)
        return _kernel_of(frame, every, 1.0)
    function = _shared_row(host, written, lanes := lanes_for(rows, every))
    table = table_for(function, 1 if function is host else lanes, every, shared_limit)
    if table.shared > usable(shared_limit):
        function, table = host, table_for(host, 1, every, shared_limit)
    if host.products and table.kind != "tiled":
        return None
    frame = RowKernel(f"{function.name}_{'fold' if folding else 'kernel'}", function, host, table, folded)
    return _kernel_of(frame, every, float(table.resident) if folding else _WAVES)


def _of_matrices(written: Callable[..., RowFunction], folding: Folding, shared_limit: int) -> TableKernel | None:
    """Return the kernel that folds matrices as matrix products; None if nothing is such a matrix, or none fits."""
    apart: frozenset[str] = frozenset()
    while True:
        try:
            host = written(1, apart=apart)
        except NotFactored as output:
            apart |= {output.name}
            continue
        matrices = [accumulated(outer.field, Scalar(outer.dtype), outer.high * outer.broad, folding.fields)
                    for outer in host.outers]
        other = {outer.field for outer, each in zip(host.outers, matrices, strict=True)
                 if [one.functor for one in each] != ["Add"]}
        if not other:
            break
        apart |= other
    if not matrices or host.scratch:
        return None
    others = _folded(host, folding)
    every = tuple(one for each in others for one in each.accumulated)
    sums = tuple(each[0] for each in matrices)
    shared = functools.partial(written, apart=apart)
    few = _shared_row(host, shared, matrix_fold.LANES)
    blocks = block_table(few, every, sums, shared_limit)
    if blocks is not None:
        schedule, ring = blocks
        return _kernel_of(BlockFold(f"{few.name}_fold", few, host, schedule, matrices=sums, ring=ring), sums,
                          matrix_fold.waves_of(sums))
    lanes = max(matrix_fold.LANES, lanes_for(few.shared_widths, every))
    function, table = _of_all_threads(host, shared, lanes, every, sums, shared_limit)
    if table is None:
        return None
    frame = matrix_fold.MatrixFold(f"{function.name}_fold", function, host, table, others, matrices=sums)
    frame = by_groups(by_roles(frame, shared_limit), few, shared_limit)
    return _kernel_of(frame, (*every, *sums), matrix_fold.waves_of((*every, *sums)))


def _of_all_threads(host: RowFunction, written: Any, lanes: int, every: tuple[Accumulated, ...],
                    sums: tuple[Accumulated, ...], shared_limit: int) -> tuple[RowFunction, Table | None]:
    """Return the row function by as many lanes as leave no thread of a block without a row of a tile, and its schedule.
    """
    chosen: tuple[RowFunction, Table | None] = host, None
    while lanes <= WARP:
        function = _shared_row(host, written, lanes)
        table = matrix_fold.matrix_table(function, 1 if function is host else lanes, every, sums, shared_limit)
        if table is None:
            break
        chosen = function, table
        if function is host or table.groups // 2 < table.tile:
            return chosen
        lanes *= 2
    return chosen if chosen[1] else (host, matrix_fold.matrix_table(host, 1, every, sums, shared_limit))


def _folded(function: RowFunction, folding: Folding, but: str | None = None) -> tuple[AccumulatedField, ...]:
    """Return the folded outputs of a function, each with its accumulators."""
    return tuple(AccumulatedField(port, accumulated(port.parameter.name, Scalar(port.parameter.dtype), port.count,
                                                    folding.fields))
                 for port in function.outputs if port.parameter.name != but)


def _by_key(host: RowFunction, written: Any, folding: Folding, shared_limit: int) -> TableKernel | None:
    if host.scratch:
        raise Refusal(f"arrays of {host.scratch:,} bytes are kept for each element, and a fold by key keeps none")
    key = next((port for port in host.outputs if port.parameter.name == folding.key), None)
    if key is None or not key.number or Scalar(key.parameter.dtype).kind not in "biu":
        raise Refusal(f"keys to fold by are integers in the field {folding.key!r}, and there is none")
    folded = tuple(AccumulatedField(each.port,
                                    tuple(replace(one, width=one.width * folding.groups) for one in each.accumulated))
                   for each in _folded(host, folding, folding.key))
    keys = of_keys(folding.key, folding.groups)
    every = (*keys, *(one for each in folded for one in each.accumulated))
    nbytes = sum(one.width * one.itemsize for one in every)
    if nbytes > _PARTIAL_BYTES:
        raise Refusal(f"{folding.groups} groups take {nbytes:,} bytes for each thread block, and at most "
                      f"{_PARTIAL_BYTES:,} can be")
    for most in (WARP, _LANES_IN_MEMORY):
        lanes = min(most, lanes_for_key(sum(each.port.count for each in folded)))
        function = _shared_row(host, written, lanes)
        table, place = keyed_table(function, 1 if function is host else lanes, nbytes + 16 * len(every), shared_limit)
        if place:
            break
    cells, sums = KeyCells(place), tuple(one for each in folded for one in each.accumulated)
    if all(one.words for one in sums) and not host.products:
        numbers = sum(each.port.count for each in folded)
        table, cells = table_with_cells(function, table, place, cell_bytes(keys[0], sums), 8 * sum(
            one.width * one.words for one in (keys[0], *sums)), numbers, _PARTIAL_BYTES / nbytes < _MULTIPROCESSORS,
                                shared_limit)
    if table.shared > usable(shared_limit):
        function = host
        table, place = keyed_table(host, 1, nbytes + 16 * len(every), shared_limit)
        cells = KeyCells(place)
    if not cells.place:
        ordered = _sorted_by_key(host, written, folding, (key, folded, keys), shared_limit)
        if ordered is not None:
            return ordered
    if host.products and table.kind != "tiled":
        return None
    frame = KeyedFrame(f"{function.name}_fold", function, host, table, folded, key=key, groups=folding.groups,
                       of_keys=keys, cells=cells)
    ordered = _kernel_of(frame, every, min(float(table.resident), _PARTIAL_BYTES / nbytes / _MULTIPROCESSORS))
    return replace(ordered, preparation=frame.preparation)


def _sorted_by_key(host: RowFunction, written: Any, folding: Folding,
                   parts: tuple[Port, tuple[AccumulatedField, ...], tuple[Accumulated, ...]],
                   shared_limit: int) -> TableKernel | None:
    """Return the kernel that sorts rows by their keys and folds each key's by a warp; None if it has no room, or if a
    row cannot be shared by a warp's lanes.
    """
    key, folded, keys = parts
    sums = tuple(one for each in folded for one in each.accumulated)
    function = _shared_row(host, written, WARP)
    if function is host:
        return None
    outer = _outer_by_key(function, written, folding, sums)
    width = next(port.count for port in function.inputs if port.local == outer.pairs[0][0].row) if outer else 0
    sized = functools.partial(sorted_fold.sorted_table, function, folding.groups, sums, shared_limit)
    table = sized(of_warp=sorted_fold.bytes_of_rows(width)) if outer else None
    if table is None:
        outer, table = None, sized()
    if table is None:
        return None
    of_key = written(1, wanted=frozenset([folding.key]))
    if of_key.products or function.flats or not set(of_key.given) <= set(function.given) \
            or not set(of_key.inputs) <= set(function.inputs):
        return None
    frame = sorted_fold.SortedFold(f"{function.name}_fold", function, host, table, folded, key=key,
                                   groups=folding.groups, of_keys=keys, cells=KeyCells(""),
                                   of_key=replace(of_key, name=f"{function.name}_key"), outer=outer)
    every = (*keys, *sums)
    nbytes = sum(one.width * one.itemsize for one in every)
    return _kernel_of(frame, every, min(float(table.resident), _PARTIAL_BYTES / nbytes / _MULTIPROCESSORS))


def _outer_by_key(function: RowFunction, written: Any, folding: Folding,
                  sums: tuple[Accumulated, ...]) -> OuterSum | None:
    """Return the sum of outer products of two parts of a row of floats, if a fold by key has that sum alone."""
    if ([one.fold for one in sums] != ["rows::Fold<Add, Value, float, double>"]
            or function.products or function.scratch):
        return None
    try:
        outers = written(WARP, apart=frozenset([folding.key]), least=1).outers
    except NotFactored:
        return None
    if len(outers) != 1 or len(outers[0].pairs) != 1:
        return None
    rows = {factor.row for factor in outers[0].factors}
    return outers[0] if len(rows) == 1 and "" not in rows else None


def _kernel_of(frame: RowKernel, every: tuple[Accumulated, ...], waves: float) -> TableKernel:
    function, table = frame.function, frame.table
    parameters = (*(port.parameter for port in (*frame.ports, *function.flats)),
                  *(parameter for _, parameter in function.given))
    return TableKernel(frame.source(), frame.name, function.results, function.structure, function.merge, parameters,
                       every, table.block, table.shared, table.tile, waves, workspace=frame.workspace)


def _shared_row(host: RowFunction, written: Any, lanes: int) -> RowFunction:
    """Return the row function by some lanes, or by one where it goes along its rows step by step."""
    if lanes > 1:
        try:
            function = written(lanes)
        except Serial:
            return host
        if function.inputs == host.inputs and function.given == host.given and function.products == host.products:
            return function
    return host
