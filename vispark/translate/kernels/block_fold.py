"""Writer of kernels that fold a matrix of parts of rows block by block, by warps with roles where a GPU has barriers in
shared memory.

A block of 128 x 128 of the matrix needs 256 columns of the rows and nothing else; thread blocks that are neighbours go
over the same rows at the same time, each for another block of the matrix (``vispark/outer_blocks.h``). Warps with roles
bring in and split one tile while others multiply those before it (``vispark/outer_roles.h``), also of matrices that are
one block: other GPUs have tiles of warps for these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vispark.translate.ir.folding import Accumulated
from vispark.translate.kernels.matrix_fold import LANES, MatrixFold, matrix_table
from vispark.translate.kernels.outer_sums import Factor, OuterSum
from vispark.translate.kernels.row_function import Port, RowFunction
from vispark.translate.kernels.row_kernel import IndentedText
from vispark.translate.kernels.schedule import WARP, Table, usable

#: Rows and columns of a block of the matrix, and of a small one; threads of a block, and rows of a tile.
_SIDE, _SMALL, _THREADS, _ROWS = 128, 64, 256, 32
#: Warps that multiply.
_MULTIPLIERS = 8
#: Floats that are brought in at once, bytes of a barrier, and those at whose multiples parts begin.
_CHUNK, _BARRIER_BYTES, _ALIGNED = 4, 8, 128
#: Columns from which on the matrix of these with themselves, or of two parts of a row, is faster by roles than by tiles
#: of warps, if it is one block, small or not.
_LEAST, _LEAST_OF_TWO = {_SMALL: 49, _SIDE: 97}, {_SMALL: 64, _SIDE: 96}


@dataclass(frozen=True)
class Ring:
    """Tiles of ``rows`` rows that roles have in shared memory: ``tiles`` as they come, of which ``ahead`` are on their
    way, and the split columns of ``parts`` of them. ``loaders`` warps bring them in and split them.
    """

    rows: int
    tiles: int
    parts: int
    ahead: int
    loaders: int

    @property
    def warps(self) -> int:
        """Return the warps of a block."""
        return _MULTIPLIERS + self.loaders

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return its numbers in the order of the kernel's."""
        return self.rows, self.tiles, self.parts, self.ahead, self.loaders

    def nbytes(self, side: int, across: int) -> int:
        """Return the bytes of shared memory for blocks of ``side`` columns of tiles that are ``across`` wide."""
        floats = self.tiles * self.rows * (across + _CHUNK) + self.parts * 2 * self.rows * side
        return -(-(4 * floats + _BARRIER_BYTES * (2 * (self.tiles + self.parts) + 1)) // _ALIGNED) * _ALIGNED


#: The rings of matrices by the sides of their blocks, and whether their factors are the same columns and the only ones.
_RINGS = {(_SIDE, False): Ring(32, 3, 3, 1, 4), (_SIDE, True): Ring(32, 6, 3, 3, 4),
          (_SMALL, False): Ring(64, 3, 3, 1, 4), (_SMALL, True): Ring(64, 6, 3, 4, 8)}


def block_table(function: RowFunction, rest: tuple[Accumulated, ...], matrices: tuple[Accumulated, ...],
                shared_limit: int) -> tuple[Table, Ring | None] | None:
    """Return the schedule of a fold of one matrix in blocks, and the ring of roles if it fits shared memory; None where
    the function gives something else, its factors are not parts of a row of whole chunks, the matrix is small, or tiles
    do not fit.
    """
    outer = function.outers[0]
    if not _is_of_a_row(function, rest, matrices) or min(outer.high, outer.broad) <= _SIDE:
        return None
    ring = _RINGS[_SIDE, False]
    tiles = [(ring.warps * WARP, 3, ring.nbytes(_SIDE, 2 * _SIDE), ring),
             *((_THREADS, stages, stages * 4 * _ROWS * (2 * _SIDE + _CHUNK), None) for stages in (3, 2))]
    for threads, stages, shared, outers in tiles:
        if shared <= usable(shared_limit):
            return Table("tiled", LANES, threads, _ROWS, stages, 1, shared), outers
    return None


def by_roles(fold: MatrixFold, shared_limit: int) -> MatrixFold:
    """Return a fold that goes by roles where a GPU has them, if its matrix is one block that gains by it; if not, the
    fold as it is. GPUs without roles have the same threads: they fold by tiles of warps, or by one block.
    """
    outer = fold.function.outers[0]
    alone = _is_symmetric(outer)
    side = _SMALL if max(outer.high, outer.broad) <= _SMALL else _SIDE
    least = (_LEAST if alone else _LEAST_OF_TWO)[side]
    ring = _RINGS[side, alone]
    shared = ring.nbytes(side, side if alone else 2 * side)
    others = tuple(one for each in fold.folded for one in each.accumulated)
    if (not least <= min(outer.high, outer.broad) <= max(outer.high, outer.broad) <= side
            or not _is_of_a_row(fold.function, others, fold.matrices) or shared > usable(shared_limit)):
        return fold
    fields = vars(fold) | {"ring": ring}
    tiles = matrix_table(fold.function, fold.table.lanes, (), fold.matrices, shared_limit, (ring.warps,))
    if tiles is not None and tiles.block == ring.warps * WARP:
        return RoleFold(**(fields | {"table": replace(tiles, shared=max(tiles.shared, shared))}))
    table = Table("tiled", LANES, ring.warps * WARP, _ROWS, 3, 1, shared)
    return fold if side == _SMALL else BlockFold(**(fields | {"table": table}))


def _is_of_a_row(function: RowFunction, rest: tuple[Accumulated, ...], matrices: tuple[Accumulated, ...]) -> bool:
    """Return whether a function gives one matrix alone, of parts of one row."""
    if rest or len(matrices) > 1 or len(function.outers[0].pairs) > 1 or function.products or function.flats:
        return False
    rows = [_row_of(factor, function) for factor in function.outers[0].factors]
    return rows[0] is not None and all(row is rows[0] for row in rows)


def _row_of(factor: Factor, function: RowFunction) -> Port | None:
    """Return the row of which a factor is a part, if that is of floats and both begin and end at whole chunks."""
    row = next((port for port in function.inputs if port.local == factor.row), None)
    return row if row and factor.c == "float" and not (factor.first % _CHUNK or row.count % _CHUNK) else None


def _is_symmetric(outer: OuterSum) -> bool:
    """Return whether a matrix is the outer product of a part of a row with itself."""
    return outer.symmetric and outer.pairs[0][0] == outer.pairs[0][1]


@dataclass(frozen=True)
class BlockFold(MatrixFold):
    """Kernel that folds one matrix of parts of rows, block by block."""

    ring: Ring | None = None

    @property
    def _headers(self) -> tuple[str, ...]:
        return (*super()._headers, "outer_roles" if self.ring else "outer_blocks")

    def _tiled(self, text: IndentedText) -> None:
        """Write the call of what does all of it, for GPUs with roles and for others."""
        if self.ring is None:
            return self._fold_by_warps(text)
        ring = self.ring
        text.add("#if VISPARK_ONE_PASS", *self._fold_by("roles", (*ring.numbers, self.table.shared)), "#else")
        self._fold_by_warps(text)
        text.add("#endif")

    def _fold_by_warps(self, text: IndentedText) -> None:
        text.add(*self._fold_by("warps", (_ROWS, self.table.stages, self.table.block)))

    def _fold_by(self, how: str, numbers: tuple[int, ...]) -> tuple[str, ...]:
        outer, = self.function.outers
        (left, right), = outer.pairs
        row = _row_of(left, self.function)
        assert row is not None
        half = str(_is_symmetric(outer)).lower()
        sizes = (outer.high, outer.broad, half, row.count, left.first, right.first, *numbers)
        return ("extern __shared__ __align__(128) unsigned char memory[];",
                f"rows::fold_by_{how}<{', '.join(map(str, sizes))}>(works, ports, {len(self.ports)}, "
                f"{self.ports.index(row)}, memory, {outer.partial});")


@dataclass(frozen=True)
class RoleFold(BlockFold):
    """Kernel that folds a matrix of one block by roles, and by tiles of warps on GPUs without."""

    def _fold_by_warps(self, text: IndentedText) -> None:
        MatrixFold(**{name: value for name, value in vars(self).items() if name != "ring"})._tiled(text)
