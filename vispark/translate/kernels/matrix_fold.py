"""Writer of kernels that fold matrices as matrix products: sums of outer products that a thread block adds up together.

The row function leaves the factors of each row of a tile (``outer_sums.py``); all threads of the block then add up the
products of the tile's rows, and what is beside the matrices is folded row by row as ever. A matrix that is larger than
what a block holds in registers takes several passes over the block's rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vispark.translate.codegen.scalar.interface import SHARED_LIMIT
from vispark.translate.ir.folding import Accumulated
from vispark.translate.kernels.outer_sums import Factor, OuterSum
from vispark.translate.kernels.row_function import RowFunction
from vispark.translate.kernels.row_kernel import IndentedText, RowKernel, at_row
from vispark.translate.kernels.schedule import FLUSHED, WARP, Table, joined_bytes, stride_of, tiled_table, usable

#: What a kernel that folds matrices includes.
HEADER = "outer"
#: Warps of a block, the fewest lanes of a row, and the rows of a tile.
WARPS, LANES = range(8, 17, 4), 4
_TILES = (256, 128, 64, 32, 16, 8)
#: Rows and columns of a matrix of which a warp has the sums, of floats and of others.
_WARP_TILE, _OTHER_TILE = (32, 64), (16, 32)
#: Registers of a thread's sums, for each 8 columns, and its others; and those of a multiprocessor.
_SUM_REGISTERS, _OTHER_REGISTERS, _REGISTERS = 24, 56, 65536
#: Instructions of a warp for a step of 8 rows, those for each 8 columns, the cycles of these products, and the
#: schedulers of a multiprocessor.
_ISSUED, _ISSUED_EACH, _PRODUCT_CYCLES, _SCHEDULERS = 37, 14, 27, 4
#: Rows whose factors the host multiplies at once, of large matrices and of others.
_MANY_ROWS, _ROWS, _LARGE = 128, 32, 1 << 14
#: What warps read beyond the end of the last row, of factors that are parts of rows.
_BEYOND_BYTES = 256
#: The most bytes that works leave on a device, and the multiprocessors of a large one.
_PARTIAL_BYTES = 1 << 30
_MULTIPROCESSORS = 132


def is_matrix_fold(source: str) -> bool:
    """Return whether a kernel's source is one that folds matrices as matrix products."""
    return f'#include "vispark/{HEADER}.h"' in source


def waves_of(accumulated: tuple[Accumulated, ...]) -> float:
    """Return the number of works for each multiprocessor; fewer than one where a work's accumulators are large."""
    nbytes = sum(one.width * one.itemsize for one in accumulated)
    return min(1.0, _PARTIAL_BYTES / nbytes / _MULTIPROCESSORS)


def matrix_table(function: RowFunction, lanes: int, rest: tuple[Accumulated, ...], matrices: tuple[Accumulated, ...],
                 shared_limit: int = SHARED_LIMIT, warps: Sequence[int] = WARPS) -> Table | None:
    """Return the schedule of a kernel that folds matrices, of as many warps as one of ``warps``, or None if not even a
    few rows' factors fit shared memory.
    """
    if not any(port.count for port in function.inputs):
        return None
    row_bytes = sum(row_step(factor, function) * factor.itemsize for factor in function.factors)
    kinds = by_sum_type(function, matrices)
    shares = [share_of(together, other_registers(kinds, lanes, rest), warps) for together in kinds]
    threads = WARP * max(share.warps for share in shares)
    joined = max(joined_bytes(threads, rest), *(_turn_bytes(together, share, threads)
                                                for together, share in zip(kinds, shares, strict=True)))
    # One tile alone, whose rows nothing brings in meanwhile, is for rows of which no two tiles fit.
    for most, stages in [*((most, stages) for most in _TILES for stages in (3, 2)), *((most, 1) for most in _TILES)]:
        table = tiled_table(function, lanes, threads, most, stages, shared_limit)
        shared = max(-(-table.shared // 16) * 16 + table.tile * row_bytes, joined) + _BEYOND_BYTES
        if shared <= usable(shared_limit) and table.tile <= most:
            return replace(table, shared=shared, resident=1)
    return None


def row_step(factor: Factor, function: RowFunction) -> int:
    """Return the distance of a factor's rows in a tile, in numbers: whole tiles of a warp, and off the banks' period.
    """
    across = max(_tile_of(factor.c))
    if factor.c != "float":
        return -(-factor.count // across) * across + 16 // factor.itemsize
    across = across if factor.count > across else 32
    return -(-factor.count // across) * across + 8 // bank_spread(function)


def bank_spread(function: RowFunction) -> int:
    """Return the number of rows of a tile between those that neighbouring lanes read of a step, so that they meet in no
    bank: one, or several where factors are parts of rows, which lie as they do.
    """
    rows = {factor.row for outer in function.outers for factor in outer.factors if factor.row}
    strides = [stride_of(port) for port in function.inputs if port.local in rows]
    return next((spread for spread in (2, 4, 8) for stride in strides if stride * spread % 16 == 8), 1)


#: A matrix and its accumulators.
Summed = tuple[OuterSum, Accumulated]


def by_sum_type(function: RowFunction, matrices: tuple[Accumulated, ...]) -> list[list[Summed]]:
    """Return a function's matrices, those together whose sums are of one type: their tiles share the warps."""
    by_type: dict[tuple[str, str], list[Summed]] = {}
    for outer, one in zip(function.outers, matrices, strict=True):
        by_type.setdefault((outer.c, one.accumulator), []).append((outer, one))
    return list(by_type.values())


@dataclass(frozen=True)
class Share:
    """Share of a warp in the matrices of a type: 8 times ``eights`` columns of a tile, of a block of ``warps``."""

    eights: int
    warps: int


def other_registers(kinds: list[list[Summed]], lanes: int, rest: tuple[Accumulated, ...]) -> int:
    """Return the registers of a thread's sums beside those of matrices; as many as there are where these are of several
    types.
    """
    return sum(-(-one.width // lanes) * one.registers for one in rest) if len(kinds) == 1 else _REGISTERS


def share_of(matrices: list[Summed], other: int = 0, warps: Sequence[int] = WARPS) -> Share:
    """Return the columns of a warp's tile, and the warps, as many as one of ``warps``, by which a scheduler multiplies
    in the fewest turns, with ``other`` registers taken.

    Examples
    --------
    >>> p = Factor("p", "float", 4, 128)
    >>> gram = OuterSum("", "out", "float", "float32", 128, 128, ((p, p),), True)
    >>> share_of([(gram, None)]), share_of([(gram, None)], other=96)
    (Share(eights=4, warps=12), Share(eights=8, warps=8))
    """
    if matrices[0][0].c != "float":
        return Share(_OTHER_TILE[1] // 8, WARPS[0])
    most = min(_WARP_TILE[1], max(-(-outer.broad // 8) * 8 for outer, _ in matrices)) // 8
    shares = [Share(eights, some) for eights in range(1, most + 1) for some in warps]
    fitting = [share for share in shares
               if _SUM_REGISTERS * share.eights + _OTHER_REGISTERS + other <= _registers(share.warps)
               and sum(tiles_of(outer, share.eights) for outer, _ in matrices) <= share.warps]
    return min(fitting, key=lambda share: _turn_cost(matrices, share), default=Share(most, WARPS[0]))


def _registers(warps: int) -> int:
    """Return the registers that a thread can have in a block of so many warps, alone on its multiprocessor."""
    return min(255, _REGISTERS // (WARP * warps))


def _turn_cost(matrices: list[Summed], share: Share) -> tuple[float, int, int]:
    """Estimate the cost of a share, to be compared: a scheduler's cycles for a step of 8 rows, by issued instructions
    or by the tensor core's products; then the warps that take turns at a tile; then the warps, negative, as more are
    better.
    """
    tiles = sum(tiles_of(outer, share.eights) for outer, _ in matrices)
    groups = share.warps // tiles
    cycles = max(_ISSUED + _ISSUED_EACH * share.eights, _PRODUCT_CYCLES * share.eights)
    return -(-tiles * groups // _SCHEDULERS) * cycles / groups, groups, -share.warps


def tiles_of(outer: OuterSum, eights: int) -> int:
    """Return the number of tiles of a matrix that warps have the sums of."""
    down, across = _tile_of(outer.c)[0], 8 * eights
    rows, columns = -(-outer.high // down), -(-outer.broad // across)
    return sum(columns - (row * down // across if outer.symmetric else 0) for row in range(rows))


def _tile_of(c: str) -> tuple[int, int]:
    return _WARP_TILE if c == "float" else _OTHER_TILE


def _turn_bytes(matrices: list[Summed], share: Share, threads: int) -> int:
    """Return the shared memory in which warps that take turns join their sums; of GPUs without tensor cores, too."""
    down, across = _tile_of(matrices[0][0].c)
    nbytes = 0
    for eights in (share.eights, across // 8):
        tiles = sum(tiles_of(outer, eights) for outer, _ in matrices)
        if 2 * tiles <= threads // WARP:
            nbytes = max(nbytes, tiles * down * 8 * eights * matrices[0][1].itemsize)
    return nbytes


@dataclass(frozen=True)
class MatrixFold(RowKernel):
    """Kernel that folds matrices by products of factors, and the rest of a row function's results beside them."""

    #: What is accumulated of each of the function's matrices.
    matrices: tuple[Accumulated, ...] = ()

    @property
    def folds(self) -> bool:
        """Whether what the row function gives is folded."""
        return True

    @property
    def header(self) -> str:
        """What the kernel includes."""
        return HEADER

    def source(self) -> str:
        """Return the source."""
        include = '#include "vispark/{}.h"\n'.format
        return super().source().replace(include(HEADER), "".join(map(include, self._headers)), 1)

    @property
    def _headers(self) -> tuple[str, ...]:
        """What the kernel includes for its matrices, in order."""
        return (self._products_header, HEADER) if self._products_header else (HEADER,)

    def _partials(self) -> list[str]:
        return super()._partials() + [f"{one.accumulator}* __restrict__ {outer.partial}" for outer, one in
                                      zip(self.function.outers, self.matrices, strict=True)]

    def _type(self, name: str, outer: OuterSum, one: Accumulated) -> str:
        half = "true" if outer.symmetric else "false"
        return f"rows::{name}<{outer.c}, {one.accumulator}, {outer.high}, {outer.broad}, {half}>"

    # -- on the host --------------------------------------------------------------------------------------------------

    def _fold_on_host(self, text: IndentedText) -> None:
        """Write the loop over rows: their factors wait until there are some, and are multiplied together."""
        large = max(outer.high * outer.broad for outer in self.host.outers) >= _LARGE
        most = _MANY_ROWS if large else _ROWS
        for factor in self.host.factors:
            text.add(f"rows::Factor<{factor.c}, {factor.count}, {most}> {factor.name}_rows;")
        for outer, one in zip(self.host.outers, self.matrices, strict=True):
            text.add(f"{self._type('OuterAlone', outer, one)} {outer.base}_sum({outer.partial});")
        for folded in self.folded:
            for one in folded.accumulated:
                text.add(f"rows::Columns<{one.functor}, {one.of}, {one.element}, {one.accumulator}, "
                         f"{folded.port.count}> {folded.name(one)};")
        text.add(f"for (long long first = 0; first < work.count; first += {most}) {{",
                 f"const int count = rows::least(work.count - first, {most});",
                 "for (int row = 0; row < count; ++row) {")
        self._row_on_host(text)
        text.add("}")
        for outer in self.host.outers:
            for left, right in outer.pairs:
                text.add(f"{outer.base}_sum.add({left.name}_rows.rows, {left.name}_rows.stride, "
                         f"{right.name}_rows.rows, {right.name}_rows.stride, count);")
        text.add("}", *(f"{outer.base}_sum.leave();" for outer in self.host.outers))
        for folded in self.folded:
            for one in folded.accumulated:
                text.add(f"rows::leave_alone<{one.functor}, {one.width}>({folded.partial(one)}, {folded.name(one)});")

    def _row_on_host(self, text: IndentedText) -> None:
        for folded in self.folded:
            text.add(f"{folded.port.c} {folded.port.local}[{folded.port.count}];")
        places = {port.local: at_row(port, "(first + row)") for port in self.function.inputs}
        places |= self._products_on_host(text, places)
        places |= {folded.port.local: f"{folded.port.local}[0]" if folded.port.number else folded.port.local
                   for folded in self.folded}
        places |= {factor.name: f"{factor.name}_rows.rows + row * {factor.name}_rows.stride"
                   for factor in self.host.factors}
        text.add(self._call(places, lanes=False))
        for folded in self.folded:
            for one in folded.accumulated:
                text.add(f"{folded.name(one)}.take({folded.port.local});")
        if self._flushes:
            text.add(f"if (row % {FLUSHED} == {FLUSHED - 1}) {{")
            text.add(*(f"{folded.name(one)}.flush();" for folded in self.folded for one in folded.accumulated), "}")

    # -- on a GPU -----------------------------------------------------------------------------------------------------

    def _tiled(self, text: IndentedText) -> None:
        """Write the passes over a work's rows, for matrices of one type after those of another."""
        for number, matrices in enumerate(by_sum_type(self.function, self.matrices)):
            _Passes(**vars(self), together=tuple(matrices), is_first=number == 0).write(text)


@dataclass(frozen=True)
class _Passes(MatrixFold):
    """Passes of a kernel over a work's rows for matrices whose sums are of one type.

    What is beside the matrices is computed in each pass, and left by the first one.
    """

    together: tuple[Summed, ...] = ()
    is_first: bool = True

    def write(self, text: IndentedText) -> None:
        """Write the passes."""
        others = tuple(one for folded in self.folded for one in folded.accumulated)
        other = other_registers(by_sum_type(self.function, self.matrices), self.table.lanes, others)
        warps = [some for some in WARPS if WARP * some <= self.table.block]
        eights = share_of(list(self.together), other, warps).eights
        text.add("{")
        for outer, one in self.together:
            name = self._type("Outer", outer, one).removesuffix(">")
            text.add(f"typedef {name}, {eights}> {outer.base}_matrix;")
        tiles = " + ".join(f"{outer.base}_matrix::TILES" for outer, _ in self.together)
        text.add(f"typedef rows::OuterSums<{outer.c}, {one.accumulator}, {tiles}, {self.table.block}, {eights}, "
                 f"{bank_spread(self.function)}> Sums;",
                 "bool careful = false;",
                 "for (int pass = 0; pass < Sums::PASSES; ++pass) {")
        RowKernel._tiled(self, text)
        text.add("}", "}")

    def _each(self, call: str) -> list[tuple[OuterSum, str]]:
        """Return a call of a function for each matrix."""
        calls, first = [], "0"
        for outer, _ in self.together:
            calls.append((outer, f"sums.{call}<{outer.base}_matrix, {first}>"))
            first = f"{outer.base}_matrix::TILES" if first == "0" else f"{first} + {outer.base}_matrix::TILES"
        return calls

    def _declare_folds(self, text: IndentedText) -> None:
        super()._declare_folds(text)
        offset = self.behind_products
        for factor in self.function.factors:
            apart = row_step(factor, self.function)
            text.add(f"{factor.c}* const {factor.name}_tile = ({factor.c}*)(memory + {offset});",
                     f"rows::clear_tile<{self.table.tile * apart}, {self.table.block}>({factor.name}_tile);")
            offset += self.table.tile * apart * factor.itemsize
        text.add("Sums sums(pass, careful);", *(f"{call}();" for _, call in self._each("place")))

    def _tile_places(self) -> dict[str, str]:
        return super()._tile_places() | {factor.name: f"{factor.name}_tile + row * {row_step(factor, self.function)}"
                                         for factor in self.function.factors}

    def _rows_of_tile(self, text: IndentedText) -> None:
        super()._rows_of_tile(text)
        text.add("rows::barrier();")
        for outer, call in self._each("add"):
            for left, right in outer.pairs:
                text.add(f"{call}({self._rows_of(left)}, {self._rows_of(right)}, count);")

    def _rows_of(self, factor: Factor) -> str:
        """Return the address of a factor's rows in shared memory, and their distance."""
        if not factor.row:
            return f"{factor.name}_tile, {row_step(factor, self.function)}"
        tile, _, stride = super()._tile_places()[factor.row].partition(" + row * ")
        return f"{tile} + {factor.first}, {stride}"

    def _store_results(self, text: IndentedText) -> None:
        text.add("rows::wait_for_groups<0>();", "sums.flush();")
        if self.together[0][0].c == "float":
            text.add(f"if (rows::any({' || '.join(f'{call}()' for _, call in self._each('fail'))})) {{",
                     "careful = true;", "--pass;", "continue;", "}")
        if self.folded and self.is_first:
            text.add("if (pass == 0) {")
            super()._store_results(text)
            text.add("}")
        text.add(f"sums.join(({self.together[0][1].accumulator}*)memory);",
                 *(f"{call}({outer.partial});" for outer, call in self._each("leave")))
