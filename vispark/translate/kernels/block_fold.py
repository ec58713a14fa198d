"""Writes kernels that fold a matrix of parts of rows that is larger than what a thread block's registers hold.

A block of 128 x 128 of the matrix needs 256 columns of the rows and nothing else; thread blocks that are neighbours go
over the same rows at the same time, each for another block of the matrix (``vispark/outer_blocks.h``).
"""

from __future__ import annotations

from dataclasses import dataclass

from vispark.translate.ir.folding import Accumulated
from vispark.translate.kernels.matrix_fold import LANES, MatrixFold
from vispark.translate.kernels.outer_sums import Factor
from vispark.translate.kernels.row_function import Port, RowFunction
from vispark.translate.kernels.row_kernel import IndentedText
from vispark.translate.kernels.schedule import Table, usable

#: Rows and columns of a block of the matrix, threads of a thread block, and rows of a tile.
_SIDE, _THREADS, _ROWS = 128, 256, 32
#: Bytes of a row of a tile, and of the parts of three tiles' columns.
_ROW_BYTES, _PARTS_BYTES = 4 * (2 * _SIDE + 4), 3 * 2 * 4 * _ROWS * _SIDE
#: Floats that are brought in at once.
_CHUNK = 4


def block_table(function: RowFunction, rest: tuple[Accumulated, ...], matrices: tuple[Accumulated, ...],
                shared_limit: int) -> Table | None:
    """Return the schedule of a fold of one matrix in blocks; None where the function gives something else, its factors
    are not parts of a row of whole chunks, the matrix is small, or tiles do not fit shared memory.
    """
    outer = function.outers[0]
    if rest or len(matrices) > 1 or len(outer.pairs) > 1 or function.products or function.flats:
        return None
    rows = [_row_of(factor, function) for factor in outer.factors]
    if min(outer.high, outer.broad) <= _SIDE or rows[0] is None or any(row is not rows[0] for row in rows):
        return None
    for stages, parts in ((3, _PARTS_BYTES), (3, 0), (2, 0)):
        shared = stages * _ROWS * _ROW_BYTES + parts
        if shared <= usable(shared_limit):
            return Table("tiled", LANES, _THREADS, _ROWS, stages, 1, shared)
    return None


def _row_of(factor: Factor, function: RowFunction) -> Port | None:
    """Return the row of which a factor is a part, if that is of floats and both begin and end at whole chunks."""
    row = next((port for port in function.inputs if port.local == factor.row), None)
    return row if row and factor.c == "float" and not (factor.first % _CHUNK or row.count % _CHUNK) else None


@dataclass(frozen=True)
class BlockFold(MatrixFold):
    """Kernel that folds one matrix of parts of rows, block by block."""

    @property
    def _headers(self) -> tuple[str, ...]:
        return (*super()._headers, "outer_blocks")

    def _tiled(self, text: IndentedText) -> None:
        """Write the call of what does all of it."""
        outer, = self.function.outers
        (left, right), = outer.pairs
        row = _row_of(left, self.function)
        assert row is not None
        parts = self.table.shared > self.table.stages * _ROWS * _ROW_BYTES
        half, has_parts = (str(value).lower() for value in (outer.symmetric and left == right, parts))
        text.add("extern __shared__ __align__(128) unsigned char memory[];",
                 f"typedef rows::Blocks<{outer.high}, {outer.broad}, {half}> Matrix;",
                 f"rows::fold_blocks<Matrix, {row.count}, {left.first}, {right.first}, {_ROWS}, {self.table.stages}, "
                 f"{has_parts}>(works, ports, {len(self.ports)}, {self.ports.index(row)}, memory, {outer.partial});")
