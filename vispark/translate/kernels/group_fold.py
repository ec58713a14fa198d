"""Writer of kernels that fold matrices of rows that are multiplied with matrices, by groups of four warps.

Where a GPU has products by four warps, a group takes 64 rows through all products, the row function and the sums, and
waits for no other (``vispark/row_groups.h``). The rows' numbers are in registers all the way (``lane_arrays.py``).
Other GPUs, and works with numbers that are not finite, go by tiles that all warps of a block share
(``matrix_fold.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vispark.translate.codegen.scalar.warp_products import products_by_warps
from vispark.translate.ir.folding import Accumulated
from vispark.translate.kernels.lane_arrays import LANES, in_registers
from vispark.translate.kernels.matrix_fold import MatrixFold, matrix_table
from vispark.translate.kernels.outer_sums import Factor, OuterSum
from vispark.translate.kernels.row_function import Port, RowFunction
from vispark.translate.kernels.row_kernel import IndentedText, matrix_type
from vispark.translate.kernels.row_matmul import Product, ProductRow
from vispark.translate.kernels.schedule import WARP, is_of_floats, usable

#: Threads of a group, the rows of its tiles, and the bytes at whose multiples parts begin.
_GROUP, _ROWS, _ALIGNED = 4 * WARP, 64, 128
#: Groups of a block, tiles in shared memory, and the rows whose outer products are added up at once: in this order the
#: first that shared memory and registers have room for.
_WAYS = ((3, 4, 64), (2, 3, 64), (2, 3, 32), (2, 2, 64))
#: The widest row in registers, and the registers of a thread beside its rows and sums; those of a multiprocessor.
_WIDEST, _OTHERS, _REGISTERS = 64, 48, 65536
#: What a group reads beyond the columns of a matrix in the last rows of a tile.
_BEYOND_BYTES = 256


@dataclass(frozen=True)
class Groups:
    """Schedule of a kernel by groups: ``count`` groups, ``tiles`` tiles in shared memory, ``batch`` rows whose outer
    products are added up at once, and the bytes of shared memory.

    ``parts`` are the places of the matrices' parts in these, ``factors`` that of the groups' factors, ``factor_bytes``
    apart, and ``tiled`` and ``bars`` those of the tiles and the barriers.
    """

    count: int
    tiles: int
    batch: int
    parts: tuple[int, ...]
    factors: int
    factor_bytes: int
    tiled: int
    bars: int
    shared: int


def by_groups(fold: MatrixFold, quads: RowFunction, shared_limit: int) -> MatrixFold:
    """Return a fold that goes by groups where a GPU has them, if ``quads``, its function by four lanes, can: it gives
    matrices alone, of one row of floats that is multiplied. If not, the fold as it is.
    """
    outers = _sums(quads.outers)
    if fold.folded or quads.name != fold.function.name or not _is_of_products(quads, outers, fold.matrices):
        return fold
    arrays = frozenset(_sizes(quads))
    lines = [in_registers(some, arrays, quads.scratch) for some in (*(one.lines for one in quads.stages), quads.lines)]
    groups = next((grouped for way in _WAYS if (grouped := _groups(quads, outers, way)).shared <= usable(shared_limit)
                   and _registers(quads, outers) <= _REGISTERS // (_GROUP * grouped.count)), None)
    if groups is None or any(some is None for some in lines):
        return fold
    table = matrix_table(fold.function, fold.table.lanes, (), fold.matrices, shared_limit, (4 * groups.count,))
    if table is None or fold.table.lanes == 1:
        return fold
    *stages, last = (tuple(some) for some in lines if some is not None)
    inner = replace(quads, lines=last, stages=tuple(replace(one, lines=some)
                                                    for one, some in zip(quads.stages, stages, strict=True)))
    return GroupFold(**(vars(fold) | {"table": replace(table, shared=max(table.shared, groups.shared)),
                                      "quads": inner, "groups": groups}))


@dataclass(frozen=True)
class _Sum:
    """Sum of outer products as groups add it up: its right factor is computed. ``is_turned`` says that this is the
    matrix's left one.
    """

    outer: OuterSum
    left: Factor
    right: Factor
    is_turned: bool

    @property
    def name(self) -> str:
        """Return the name of the sum in the kernel."""
        return f"{self.outer.base}_groups"


def _sums(outers: Sequence[OuterSum]) -> tuple[_Sum, ...]:
    """Return the sums of outer products with the computed factor to the right; of two computed ones the narrower."""
    sums = []
    for outer in outers:
        left, right = outer.pairs[0]
        is_turned = bool(right.row) or (not left.row and left.count < right.count)
        sums.append(_Sum(outer, *((right, left) if is_turned else (left, right)), is_turned))
    return tuple(sums)


def _is_of_products(function: RowFunction, outers: Sequence[_Sum], matrices: Sequence[Accumulated]) -> bool:
    """Return whether a function multiplies its row and gives matrices that groups can add up."""
    rows = [port for port in function.inputs if not port.number]
    if len(rows) != 1 or function.flats or not function.products or function.scratch % LANES:
        return False
    row, = rows
    narrow = [*((one.c, one.width) for one in function.products), *((one.c, one.count) for one in function.stages),
              *((one.c, one.count) for one in function.factors)]
    return (row.c == "float" and (row.count % 2 == 1 or row.count % 4 == 0)
            and all(is_of_floats(one) for one in function.products)
            and all(c == "float" and count <= _WIDEST for c, count in narrow)
            and all(len(one.outer.pairs) == 1 and one.outer.c == "float" and not one.right.row for one in outers)
            and all(one.accumulator == "double" for one in matrices))


def _whole(count: int, of: int) -> int:
    return -(-count // of) * of


def _stride_of(row: Port) -> int:
    """Return the distance of rows in a tile, in floats: an odd number, or an odd multiple of four; so lanes meet in
    no bank.
    """
    return row.count + (4 if row.count % 8 == 0 else 0)


def _outer_floats(one: _Sum, batch: int) -> int:
    """Return the numbers of a group's factors in shared memory; see ``rows::GroupOuter``."""
    parts = 2 * batch // 8 * 2 * (4 * _whole(one.right.count, 8) + 16)
    return parts + (0 if one.left.row else batch * (_whole(one.left.count, 64) + 4))


def _groups(function: RowFunction, outers: Sequence[_Sum], way: tuple[int, int, int]) -> Groups:
    """Lay out shared memory in one of the ways."""
    count, tiles, batch = way
    row = next(port for port in function.inputs if not port.number)
    offset, parts = 0, []
    for product in function.products:
        parts.append(offset)
        tiled = isinstance(function.row_of(product), Port)
        terms = _whole(product.terms, 32 if tiled and _stride_of(row) % 2 else 8)
        offset += _whole(4 * 2 * terms * _whole(product.width, 8), _ALIGNED)
    factors = _whole(4 * max(_outer_floats(one, batch) for one in outers), _ALIGNED)
    tiled_at = offset + count * factors
    bars = tiled_at + tiles * _whole(4 * _ROWS * _stride_of(row) + 16, _ALIGNED) + _BEYOND_BYTES
    return Groups(count, tiles, batch, tuple(parts), offset, factors, tiled_at, bars, bars + 8 * (tiles + count))


def _registers(function: RowFunction, outers: Sequence[_Sum]) -> int:
    """Return about the registers of a thread: all sums, those of the largest matrix once more, and rows."""
    sums = [_whole(one.left.count, 64) // 64 * _whole(one.right.count, 8) // 2 for one in outers]
    rows = sorted(_whole(count, 8) // 2 for count in _sizes(function).values())
    return sum(sums) + max(sums) + sum(rows[-2:]) + _OTHERS


@dataclass(frozen=True)
class GroupFold(MatrixFold):
    """Kernel that folds matrices by groups where a GPU has them, and by tiles of warps elsewhere."""

    quads: RowFunction | None = None
    groups: Groups | None = None

    @property
    def _headers(self) -> tuple[str, ...]:
        return (*super()._headers, "row_groups")

    def _functions(self) -> list[str]:
        widths = dict.fromkeys(_whole(width, 8) for width in (*(one.width for one in self._quads.products),
                                                              *(one.right.count for one in self._outers)))
        products = [line for width in widths for line in products_by_warps("SplitWgmma", width, "k8.f32.tf32.tf32",
                                                                           "1, 1")]
        return [*super()._functions(), "", "#if VISPARK_ONE_PASS", "#if VISPARK_WARPGROUPS", *products, "#endif",
                *_functions_of_quads(self._quads), "#endif"]

    @property
    def _quads(self) -> RowFunction:
        assert self.quads is not None
        return self.quads

    @property
    def _outers(self) -> tuple[_Sum, ...]:
        return _sums(self._quads.outers)

    def _tiled(self, text: IndentedText) -> None:
        """Write the work by groups, and by tiles for the works that groups fail to fold and for GPUs without groups."""
        text.add("#if VISPARK_ONE_PASS", "{")
        self._by_groups(text)
        text.add("}", "#endif")
        by_tiles = {name: value for name, value in vars(self).items() if name not in ("quads", "groups")}
        MatrixFold(**by_tiles)._tiled(text)

    def _by_groups(self, text: IndentedText) -> None:
        groups, quads = self.groups, self._quads
        assert groups is not None
        row = next(port for port in quads.inputs if not port.number)
        text.add("extern __shared__ __align__(128) unsigned char memory[];",
                 f"typedef rows::GroupTiles<{row.count}, {_stride_of(row)}, {groups.tiles}> Tiles;",
                 f"typedef rows::GroupBars<{groups.tiles}, {groups.count}> Bars;",
                 f"Bars& bars = *(Bars*)(memory + {groups.bars});",
                 f"const Tiles tiles(memory + {groups.tiled}, bars.loaded, {row.base}, work.count);",
                 "bars.prepare();",
                 f"for (int turn = 0; threadIdx.x == 0 && turn < {groups.tiles}; ++turn) tiles.bring(turn);",
                 "rows::Group group(bars.met);",
                 f"unsigned* const factors = (unsigned*)(memory + {groups.factors} + group.number * "
                 f"{groups.factor_bytes});")
        for product, offset in zip(quads.products, groups.parts, strict=True):
            stride = _stride_of(row) if isinstance(quads.row_of(product), Port) else 0
            text.add(f"typedef rows::GroupMatrix<{matrix_type(product)}, {stride}> {product.name}_group;",
                     f"unsigned* const {product.name}_parts = (unsigned*)(memory + {offset});",
                     f"{product.name}_group::bring({product.name}_parts, {{{product.matrix}}});")
        text.add("tensor::publish();", "rows::barrier();")
        for one in self._outers:
            sizes = (one.left.count, one.right.count, _stride_of(row), str(bool(one.left.row)).lower(), groups.batch,
                     str(one.is_turned).lower())
            text.add(f"typedef rows::GroupOuter<{', '.join(map(str, sizes))}> {one.name}_outer;",
                     f"double {one.name}_far[{one.name}_outer::FAR];", f"{one.name}_outer {one.name}({one.name}_far);")
        text.add("bool odd = false;", "int taken = 0;", "VISPARK_PRAGMA(unroll 1)",
                 f"for (int turn = group.number; turn < tiles.turns; turn += {groups.count}) {{")
        self._tile_of_group(text, row)
        text.add("}")
        for one in self._outers:
            text.add(f"{one.name}.flush();", f"odd |= {one.name}.is_odd();")
        text.add("if (!rows::any(odd)) {")
        for one in self._outers:
            text.add(f"{one.name}.leave(group, {groups.count}, {one.outer.partial});")
        text.add("return;", "}")

    def _tile_of_group(self, text: IndentedText, row: Port) -> None:
        """Write what a group does with a tile."""
        groups, quads = self.groups, self._quads
        assert groups is not None
        text.add(f"const float* const {row.local}_tile = tiles.wait_for(turn, group);",
                 "const int count = tiles.rows_of(turn);")
        for product in quads.products:
            of = quads.row_of(product)
            if isinstance(of, ProductRow):
                self._call_quads(text, f"_{of.name}", [of.name], _stage_reads(quads, of))
            sums = f"{product.name}_group::"
            text.add(f"float {product.name}[{_whole(product.width, 8) // 2}];")
            if isinstance(of, ProductRow):
                text.add(f"{sums}of_rows({product.name}, {of.name}, {product.name}_parts);")
            else:
                text.add(f"{sums}of_tile({product.name}, {row.local}_tile + {product.first}, {product.name}_parts);")
            text.add(f"odd |= rows::is_odd({product.name});")
        self._call_quads(text, "", [factor.name for factor in quads.factors], _names(quads.products, quads.stages))
        # Rows in registers that are left factors first, so that these registers are free then.
        for one in sorted(self._outers, key=lambda one: bool(one.left.row)):
            left = f"{row.local}_tile + {one.left.first}" if one.left.row else one.left.name
            text.add(f"{one.name}.add(group, factors, {left}, {one.right.name});")
        text.add(f"if (threadIdx.x % rows::GROUP_THREADS == 0) tiles.bring(turn + {groups.tiles});",
                 "if (++taken == rows::GROUP_TURNS) {", "taken = 0;",
                 *(f"{one.name}.flush();" for one in self._outers), "}")

    def _call_quads(self, text: IndentedText, which: str, left: Sequence[str], read: Sequence[str]) -> None:
        """Write the calls of a function for both rows of a quad, as far as there are some."""
        quads, sizes = self._quads, _sizes(self._quads)
        for name in left:
            text.add(f"float {name}[{sizes[name] // 2}] = {{}};")
        for number in (0, 1):
            at = f"rows::Group::row() + {8 * number}"
            inputs = [f"{port.base}[turn * {_ROWS}ll + {at}]" if port.number else
                      f"{port.local}_tile + ({at}) * {_stride_of(port)}" for port in quads.inputs]
            captured = [declared.rpartition(" ")[2] for declared, _ in quads.given]
            arguments = [*inputs, *(f"{{{name}}}" for name in (*left, *read)), *captured, "rows::Group::lane()"]
            text.add(f"if ({at} < count) {quads.name}_of_quads{which}<{number}>({', '.join(arguments)});")


def _sizes(function: RowFunction) -> dict[str, int]:
    """Return the numbers of each row in registers, in whole steps."""
    return {name: _whole(count, 8) for name, count in (
        *((one.name, one.width) for one in function.products), *((one.name, one.count) for one in function.stages),
        *((one.name, one.count) for one in function.factors))}


def _stage_reads(function: RowFunction, stage: ProductRow) -> list[str]:
    """Return the rows that a stage may read: the products and the stages before it."""
    product = next(one for one in function.products if one.row == stage.name)
    return _names(function.products[:function.products.index(product)],
                  function.stages[:function.stages.index(stage)])


def _names(products: Sequence[Product], stages: Sequence[ProductRow]) -> list[str]:
    return [*(one.name for one in products), *(one.name for one in stages)]


def _functions_of_quads(function: RowFunction) -> Iterator[str]:
    """Yield the row function and its stages, of one of the two rows that a quad of lanes has."""
    sizes = _sizes(function)
    inputs = [f"const {port.c} {port.local}" if port.number else f"const {port.c}* __restrict__ {port.local}"
              for port in function.inputs]
    last = [*(declared for declared, _ in function.given), "const int lane"]

    def written(which: str, rows: Sequence[str], lines: Sequence[str]) -> Iterator[str]:
        taken = ", ".join([*inputs, *(f"rows::LanesRow<{sizes[name]}, ROW> {name}" for name in rows), *last])
        yield from ("template <int ROW> static __device__ __forceinline__ void",
                    f"{function.name}_of_quads{which}({taken})", "{", *lines, "}")

    for stage in function.stages:
        yield from written(f"_{stage.name}", [stage.name, *_stage_reads(function, stage)], stage.lines)
    rows = [*(factor.name for factor in function.factors), *_names(function.products, function.stages)]
    yield from written("", rows, function.lines)
