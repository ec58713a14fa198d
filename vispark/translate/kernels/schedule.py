"""Schedules of kernels: the number of threads for a row, of rows in shared memory at once, and of thread blocks.

Decided from sizes alone: the bytes of a row, the registers of accumulators, the shared memory of a thread block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from vispark.translate.codegen.scalar.interface import SHARED_LIMIT
from vispark.translate.ir.folding import Accumulated
from vispark.translate.kernels.row_function import Port, RowFunction
from vispark.translate.kernels.row_matmul import Product, ProductRow

#: What is left of the shared memory that a thread block can have, which is about all of a multiprocessor's; what the
#: system takes of it for each block; and the most that a block of several warps has.
_LEFT_BYTES = 7 * 1024
_SYSTEM_BYTES = 1024
_BLOCK_BYTES = 110 * 1024
_REGISTERS = 65536
_THREADS = 2048
#: The registers that a thread has beside those of accumulators, about, and one more for two of these; and where its
#: elements are numbers.
_OTHER_REGISTERS = 56
_FLAT_REGISTERS = 36

WARP = 32

#: The fewest rows that are multiplied together, and the most bytes of a matrix that lie in shared memory.
_MULTIPLIED_ROWS = 16
#: The rows that a warp's tensor cores multiply, and the bytes of a float's two parts.
TENSOR_ROWS = 16
_MATRIX_BYTES = 24 * 1024
_PAIR_BYTES = 8
#: The most bytes of a matrix of which tensor cores have the parts.
_PARTS_BYTES = 64 * 1024

#: The widest row that one thread works on alone, in 4-byte words, and the most of a row's numbers that one of its lanes
#: has.
_NARROW = 64
_PER_LANE = 16
#: The most registers that a thread's accumulators may take.
_ACCUMULATOR_REGISTERS = 144
#: Bytes of rows that a thread block has on their way at once, at most, and the part of its shared memory that they are;
#: and those of folds whose lanes have two rows each of a tile, and wait for others half as often.
_STAGE_BYTES = 20 * 1024
_STAGE_PART = 6
_TWO_ROWS_BYTES = 24 * 1024
#: Bytes that a multiprocessor must have on their way for the memory's full speed.
_AHEAD_BYTES = 64 * 1024
_MOST_ROWS = 1024
#: The most numbers of a row that one of its lanes folds by key, and the fewest threads of a multiprocessor for which
#: each warp has cells in shared memory, or each thread.
_PER_KEY_LANE = 4
_FEW_THREADS = 128
_OWN_THREADS = 384
_KEY_REGISTERS = 8
#: The threads of a multiprocessor from which on warps that fold rows need no cells together; the most numbers of a
#: record whose cells threads have together, the most digits of its sums that a block has where not all fit, the most
#: parts of the keys, by what the cells of each may take more than their share, and the most bytes of cells in memory.
_MANY_THREADS = 256
_NARROW_RECORD = 16
_MOST_DIGITS = 4
_MOST_PARTS = 8
_PART_BYTES = 1024
_FAR_BYTES = 256 << 20
#: Rows of float that are summed before they are added to a double.
FLUSHED = 16
#: Numbers that the host folds side by side.
TOGETHER = 256


@dataclass(frozen=True)
class Table:
    """Schedule of a kernel: how its threads cover the work.

    Attributes
    ----------
    kind : str
        "flat": elements are numbers, several neighbouring ones by each thread; "tiled": rows come through shared memory
        in tiles; "direct": rows are read where they are.
    lanes, block : int
        Threads of a row and of a thread block.
    tile, stages : int
        Rows of a tile, and tiles in shared memory; for "flat" the elements of a few turns of all threads, and those
        that a thread reads at once.
    resident : int
        Thread blocks that a multiprocessor has room for.
    shared : int
        Bytes of dynamic shared memory.
    """

    kind: str
    lanes: int
    block: int
    tile: int
    stages: int
    resident: int
    shared: int

    @property
    def groups(self) -> int:
        """Rows that a thread block works on at once."""
        return self.block // self.lanes


@dataclass(frozen=True)
class Multiplied:
    """Tiling of the product of a tile's rows and a matrix by a thread block; see ``vispark/products.h``.

    A thread has ``high`` rows and ``broad`` columns; ``most`` terms of the matrix, ``wide`` numbers each, lie in shared
    memory at once; ``read`` numbers of a row are read at once; products of ``rows`` rows lie ``apart``. Tensor cores
    multiply where ``tensor`` says so; see ``vispark/tensor_products.h``.
    """

    high: int
    broad: int
    most: int
    read: int
    apart: int
    rows: int
    wide: int
    itemsize: int
    tensor: bool

    @property
    def matrix_bytes(self) -> int:
        """Shared memory of the matrix."""
        if self.tensor:
            return self.most * self.wide * _PAIR_BYTES
        return -(-self.most * self.wide * self.itemsize // 16) * 16

    @property
    def nbytes(self) -> int:
        """Shared memory of the matrix and of the products."""
        return self.matrix_bytes + -(-self.rows * self.apart * self.itemsize // 16) * 16


def stride_of(port: Port | ProductRow) -> int:
    """Return the distance of a port's or a stage's rows in a tile, in numbers.

    Rows that are whole multiples of 16 bytes are read 16 bytes at a time, and lie at an odd multiple of 16; others lie
    as they do in memory, where their distance is an odd multiple of the largest unit that divides it. Either way
    threads that read their own rows side by side meet in no bank.
    """
    if port.nbytes % 32 == 0:
        return port.count + 16 // port.itemsize
    return port.count


def lanes_for(widths: Sequence[tuple[int, int]], accumulated: Sequence[Accumulated]) -> int:
    """Return the number of threads that share a row, for its columns and their bytes."""
    lanes = 1
    widest = max((count for count, _ in widths), default=1)
    if max((nbytes for _, nbytes in widths), default=1) > 4 * _NARROW:
        while lanes < 32 and -(-widest // lanes) > _PER_LANE:
            lanes *= 2
    while lanes < 32 and sum(-(-one.width // lanes) * one.registers for one in accumulated) > _ACCUMULATOR_REGISTERS:
        lanes *= 2
    return lanes


def usable(shared_limit: int) -> int:
    """Return the bytes of shared memory that a schedule may use, out of the ``shared_limit`` of a thread block."""
    return shared_limit - _LEFT_BYTES


def table_for(function: RowFunction, lanes: int, accumulated: Sequence[Accumulated],
              shared_limit: int = SHARED_LIMIT) -> Table:
    """Return the table for a row function; it fits, unless arrays of the rows' own do not."""
    rows = [port for port in (*function.inputs, *function.outputs) if not port.number]
    if not rows and lanes == 1:
        return _flat(function, accumulated, shared_limit)
    for block in (256, 128, 64, 32) if lanes > 1 and not accumulated else (128, 64, 32):
        tried = [_tiled(function, lanes, accumulated, block, stages, bool(accumulated), shared_limit) for stages in (3,
                                                                                                                     2,
                                                                                                                     1)]
        most = min(usable(shared_limit), _BLOCK_BYTES) if block > WARP else usable(shared_limit)
        fitting = [found for found in tried if found.shared <= most]
        if fitting:
            return _best(fitting, function)
    return _direct(function, lanes, accumulated, shared_limit)


def lanes_for_key(width: int) -> int:
    """Return the number of threads that share a row whose ``width`` numbers are folded by key."""
    lanes = 1
    while lanes < 32 and -(-width // lanes) > _PER_KEY_LANE:
        lanes *= 2
    return lanes


def keyed_table(function: RowFunction, lanes: int, cells: int, shared_limit: int = SHARED_LIMIT) -> tuple[Table, str]:
    """Return the schedule of a fold by key with ``cells`` bytes of accumulators, and the owner of accumulators in
    shared memory.

    Each thread has its own if these are few, so that none waits for another; or each warp. Where even these do not fit,
    a thread block is one warp with its cells in memory, which is "".
    """
    if lanes == 1:
        tables = _with_cells(function, 1, lambda block: block * cells, _OWN_THREADS, shared_limit)
        if tables:
            return max(tables, key=lambda table: table.resident * table.block), "thread"
    tables = _with_cells(function, lanes, lambda block: block // 32 * cells, _FEW_THREADS, shared_limit)
    if tables:
        return max(tables, key=lambda table: table.resident * table.block), "warp"
    return _without_cells(function, lanes, (WARP,), shared_limit), ""


@dataclass(frozen=True)
class KeyCells:
    """Placement of the accumulators of a fold by key.

    Attributes
    ----------
    place : str
        Who has them: "thread", "warp" or "block", in shared memory; all blocks of a "device", in memory; or, as "", a
        block of one warp, in memory.
    near : int
        The digits of each sum, and all words of other cells, that a block has in shared memory, too; 0 if none.
    parts : int
        How many times a block goes over its rows, for a part of the keys each time.
    """

    place: str
    near: int = 0
    parts: int = 1


def table_with_cells(function: RowFunction, table: Table, place: str, nbytes: Sequence[int], far: int, numbers: int,
                     few: bool, shared_limit: int = SHARED_LIMIT) -> tuple[Table, KeyCells]:
    """Return the table for a fold by key whose cells many threads can have together, and where these are.

    ``nbytes`` are the bytes of all keys' cells: whole; then with 4, 3, ... digits of each sum, if what a block has
    can be added to what is in memory; ``far`` those of whole ones there. Where elements are numbers, or warps of their
    own would be few, a block has them in shared memory if a row's numbers are not many. Where whole ones do not fit, a
    block has digits, of the keys of a part, and the others are in memory, as all are where parts would be many, if the
    row's numbers are not many either or ``few`` warps would be.
    """
    flat = _all_numbers(function, table.lanes)
    if place == "thread" or (numbers > _NARROW_RECORD and (place or not few)) or (
            place and not flat and table.resident * table.block >= _MANY_THREADS):
        return table, KeyCells(place)
    if numbers <= _NARROW_RECORD:
        whole, *digits = nbytes
        chosen = _with_block_cells(function, table, flat, whole, shared_limit)
        if chosen:
            return chosen, KeyCells("block")
        most = _MOST_PARTS if flat else 1
        cells = [KeyCells("device", _MOST_DIGITS - i, -(-each // (usable(shared_limit) - _PART_BYTES)))
                 for i, each in enumerate(digits)]
        # With the fewest digits most numbers of some sums may have to go to memory.
        for one in sorted(cells, key=lambda one: one.parts * (5 if one is cells[-1] and len(cells) > 1 else 4)):
            shared = -(-digits[_MOST_DIGITS - one.near] // one.parts) + (_PART_BYTES if one.parts > 1 else 0)
            chosen = _with_block_cells(function, table, flat, shared, shared_limit) if one.parts <= most else None
            if chosen:
                return chosen, one
    if place or far > _FAR_BYTES:
        return table, KeyCells(place)
    return (_flat_with_cells(function, 0, shared_limit)[0] if flat else
            _without_cells(function, table.lanes, (512, 256, 128, 64, WARP), shared_limit)), KeyCells("device")


def _with_block_cells(function: RowFunction, table: Table, flat: bool, nbytes: int, shared_limit: int) -> Table | None:
    """Return the schedule with most threads whose blocks have ``nbytes`` of cells; None if they do not fit."""
    tables = _flat_with_cells(function, nbytes, shared_limit) if flat else \
        _with_cells(function, table.lanes, lambda _: nbytes, _OWN_THREADS, shared_limit, (512, 256, 128))
    return max(tables, key=lambda one: one.resident * one.block, default=None)


def cell_bytes(count: Accumulated, sums: Sequence[Accumulated]) -> list[int]:
    """Return the bytes of shared memory that cells of all keys take, as :func:`table_with_cells` wants them."""
    every = [count, *sums]

    def nbytes(digits: int) -> int:
        return sum(_aligned(8 * one.width * (one.words if digits >= one.digits else digits), ()) for one in every)

    whole = nbytes(max(one.words for one in every))
    if any(one.functor != "Add" for one in sums):
        return [whole]
    fewest = max((one.fewest_digits for one in sums if one.digits), default=_MOST_DIGITS)
    return [whole, *(nbytes(digits) for digits in range(_MOST_DIGITS, fewest - 1, -1))]


def _all_numbers(function: RowFunction, lanes: int) -> bool:
    """Return whether elements are numbers, that a thread reads several of at once."""
    return lanes == 1 and not function.products and not function.scratch and all(
        port.number for port in function.inputs)


def _flat_with_cells(function: RowFunction, cells: int, shared_limit: int) -> list[Table]:
    """Return tables for elements that are numbers, with cells in shared memory."""
    tables = []
    for block in (512, 1024, 256):
        shared = max(cells, block // 32 * 8)
        if shared <= usable(shared_limit):
            pack = _pack(function)
            resident = _resident(block, shared, _KEY_REGISTERS, shared_limit, _FLAT_REGISTERS)
            tables.append(Table("flat", 1, block, block * pack, pack, resident, shared))
    return tables


def _with_cells(function: RowFunction, lanes: int, cells: Callable[[int], int], fewest: int, shared_limit: int,
                blocks: Sequence[int] = (128, 64, 256, 32)) -> list[Table]:
    """Return tables that leave room for cells, and have threads enough."""
    tables = []
    for block in blocks:
        for part in (2, 1):
            table = _tiled(function, lanes, (), block, 2, True, shared_limit, part)
            shared = -(-table.shared // 16) * 16 + cells(block) + _SYSTEM_BYTES
            table = replace(table, shared=shared, resident=_resident(block, shared, _KEY_REGISTERS, shared_limit))
            if shared <= usable(shared_limit) and table.resident * block >= fewest:
                tables.append(table)
    return tables


def _without_cells(function: RowFunction, lanes: int, blocks: Sequence[int], shared_limit: int) -> Table:
    """Return a table for a fold by key that needs room for tiles alone, or for nothing where these do not fit."""
    for block in blocks:
        for stages in (2, 1):
            table = _tiled(function, lanes, (), block, stages, True, shared_limit)
            if table.shared <= usable(shared_limit):
                return table
    return _direct(function, lanes, (), shared_limit, (WARP,))


def _best(tables: Sequence[Table], function: RowFunction) -> Table:
    """Choose, of the schedules with enough bytes in flight, the one with most threads, else the one with most bytes in
    flight.
    """
    row = sum(port.nbytes for port in function.inputs)

    def worth(table: Table) -> tuple[int, int, int]:
        ahead = table.resident * (table.stages - 1) * table.tile * row
        return min(_AHEAD_BYTES, ahead), table.resident * table.block, ahead

    return max(tables, key=worth)


def _direct(function: RowFunction, lanes: int, accumulated: Sequence[Accumulated], shared_limit: int,
            blocks: Sequence[int] = (128, 64, WARP)) -> Table:
    """Return the schedule that reads rows in place. Blocks of several warps join their accumulators in shared memory, a
    block of one warp needs none.
    """
    for block in blocks:
        joined = joined_bytes(block, accumulated) if block > WARP else 0
        shared = max(block // lanes * function.scratch, joined)
        if shared <= usable(shared_limit):
            break
    registers = sum(-(-one.width // lanes) * one.registers for one in accumulated)
    resident = _resident(block, shared, registers, shared_limit)
    return Table("direct", lanes, block, max(16, block // lanes), 1, resident, shared)


def in_workspaces(function: RowFunction, accumulated: Sequence[Accumulated], shared_limit: int) -> Table:
    """Return the schedule of rows whose own arrays are in device memory: few of them at once."""
    return _direct(replace(function, scratch=0), 1, accumulated, shared_limit, (WARP,))


def _flat(function: RowFunction, accumulated: Sequence[Accumulated], shared_limit: int) -> Table:
    pack = _pack(function)
    registers = sum(one.registers for one in accumulated)
    return Table("flat", 1, 256, 256 * max(pack, 16), pack, _resident(256, 0, registers, shared_limit, _FLAT_REGISTERS),
                 joined_bytes(256, accumulated))


def _pack(function: RowFunction) -> int:
    """Return the number of neighbouring elements that a thread reads at once."""
    largest = max(port.itemsize for port in (*function.inputs, *function.outputs))
    return max(1, 16 // largest) if largest > 1 else 16


def _tiled(function: RowFunction, lanes: int, accumulated: Sequence[Accumulated], block: int, stages: int,
           folds: bool, shared_limit: int, part: int = 1, most: int = 0) -> Table:
    nbytes = usable(shared_limit) // 3 if most else min(_STAGE_BYTES, usable(shared_limit) // _STAGE_PART) // part
    row = sum(stride_of(port) * port.itemsize for port in function.inputs)
    out = 0 if folds or lanes == WARP else \
        sum(stride_of(port) * port.itemsize for port in function.outputs if not port.number)
    groups = block // lanes
    tile = min(groups, _MULTIPLIED_ROWS) if function.products else min(WARP, most) if most else groups
    tile = min(tile, most) if most else tile
    two = 2 * groups * row
    if folds and accumulated and lanes > 1 and two <= min(_TWO_ROWS_BYTES, usable(shared_limit) // _STAGE_PART):
        nbytes = max(nbytes, two)
    while tile < (most or _MOST_ROWS) and 2 * tile * row <= nbytes and tile < FLUSHED * groups:
        tile *= 2
    while any(tile * port.nbytes % 16 for port in (*function.inputs, *function.outputs)):
        tile *= 2
    shared = stages * _aligned(tile * row, function.inputs) + _aligned(tile * out, function.outputs) \
        + groups * function.scratch
    shared = -(-shared // 16) * 16 + sum(multiplied(product, tile, block, function).nbytes
                                         for product in function.products)
    shared += sum(staged_bytes(stage, tile) for stage in function.stages)
    shared = max(shared, joined_bytes(block, accumulated))
    registers = sum(-(-one.width // lanes) * one.registers for one in accumulated)
    return Table("tiled", lanes, block, tile, stages, _resident(block, shared, registers, shared_limit), shared)


def tiled_table(function: RowFunction, lanes: int, block: int, most: int, stages: int, shared_limit: int) -> Table:
    """Return the schedule of a fold through shared memory whose tiles have at most ``most`` rows, if they can."""
    return _tiled(function, lanes, (), block, stages, True, shared_limit, most=most)


def multiplied(product: Product, rows: int, threads: int, function: RowFunction) -> Multiplied:
    """Return the tiling of a product of a tile's rows: the register blocks that take the fewest turns."""
    port = function.row_of(product)
    shapes = [(high, broad) for high in (4, 2, 1) for broad in (8, 4, 2) if rows % high == 0]

    def turns(shape: tuple[int, int]) -> int:
        high, broad = shape
        items = rows // high * -(-product.width // broad)
        return -(-items // threads) * (high * broad + 2 * high + broad)

    high, broad = min(shapes, key=turns)
    if is_of_floats(product) and rows % TENSOR_ROWS == 0:
        wide = -(-product.width // 8) * 8
        # Terms come in steps of 8, and of rows an odd number of floats apart in fours of these.
        whole = 32 if stride_of(port) % 2 and product.terms > 24 else 8
        held = _PARTS_BYTES // (wide * _PAIR_BYTES) // whole * whole
        most = min(-(-product.terms // whole) * whole, max(whole, held))
        return Multiplied(high, broad, most, 1, product.width | 1, rows, wide, product.itemsize, True)
    wide = -(-product.width // broad) * broad
    most = min(product.terms, max(4, _MATRIX_BYTES // (wide * product.itemsize) // 4 * 4))
    fours = port.itemsize == 4 and not (stride_of(port) % 4 or product.first % 4 or product.terms % 4 or most % 4)
    return Multiplied(high, broad, most, 4 if fours else 1, product.width | 1, rows, wide, product.itemsize, False)


def is_of_floats(product: Product) -> bool:
    """Return whether a product is of floats alone, which tensor cores may multiply."""
    return product.c == product.row_c == product.matrix_c == "float"


def staged_bytes(stage: ProductRow, rows: int) -> int:
    """Return the bytes of shared memory for what a stage leaves of the rows of a tile."""
    return -(-rows * stride_of(stage) * stage.itemsize // 16) * 16


def _aligned(nbytes: int, ports: Sequence[Port]) -> int:
    """Return room for tiles of which each starts at 16 bytes."""
    return -(-(nbytes + 16 * len(ports)) // 16) * 16 if nbytes else 0


def joined_bytes(block: int, accumulated: Sequence[Accumulated]) -> int:
    """Return the bytes for joining the accumulators of a thread block's warps."""
    return max((block // 32 * one.width * one.itemsize for one in accumulated), default=0)


def _resident(block: int, shared: int, registers: int, shared_limit: int, others: int = _OTHER_REGISTERS) -> int:
    """Return the number of resident thread blocks of a multiprocessor, for ``registers`` of accumulators and other
    ones.
    """
    per_thread = min(255, others + registers + registers // 2)
    by_registers = _REGISTERS // (block * -(-per_thread // 8) * 8)
    by_shared = usable(shared_limit) // (shared + _SYSTEM_BYTES)
    return max(1, min(_THREADS // block, by_registers, by_shared))
