"""Writer of the kernel that folds wide records by key: a thread block sorts rows by their keys, and warps fold these.

For records of many numbers, of which no thread block has cells for all keys in shared memory. The keys of some rows
are computed first; then each warp takes keys in turn, and folds a key's rows in its registers
(``vispark/sorted_keys.h``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vispark.translate.ir.folding import Accumulated
from vispark.translate.kernels.keyed_fold import KeyedFrame
from vispark.translate.kernels.outer_sums import OuterSum
from vispark.translate.kernels.row_function import RowFunction
from vispark.translate.kernels.row_kernel import IndentedText, at_row, function_of_row, slots_of, unrolled
from vispark.translate.kernels.schedule import WARP, Table, usable

#: Threads of a block and the most registers of accumulators with so many, the rows that a thread sorts, and a tile's.
_BLOCKS, _ROWS, _TILE = ((512, 48), (256, 144)), 64, 1024
#: Rows of a key whose outer products a warp adds up at once.
_OUTER_ROWS = 40
#: The most keys of which a block has counts for each warp.
_MOST_KEYS = 8192
#: Rows that a thread reads before it goes on, by the accumulators' registers: of keys, and of a key by a warp. Several
#: are read of functions of few lines alone, which are written out for each.
_KEYS_AT_ONCE, _AT_ONCE, _FEW_LINES = 4, ((16, 8), (48, 4)), 40


def sorted_table(function: RowFunction, groups: int, accumulated: tuple[Accumulated, ...],
                 shared_limit: int, of_warp: int = 0) -> Table | None:
    """Return the schedule of a fold of rows that are sorted by key; None if a warp or a block has no room for it.

    A warp has ``of_warp`` bytes of shared memory beside those of its rows.
    """
    if groups > _MOST_KEYS or function.products:
        return None
    registers = _registers(groups, accumulated)
    for threads, most in _BLOCKS:
        shared = _sorted_bytes(groups, threads) + threads // WARP * (function.scratch + of_warp)
        if registers <= most and shared <= usable(shared_limit):
            return Table("sorted", WARP, threads, _TILE, 1, 1, shared)
    return None


def bytes_of_rows(width: int) -> int:
    """Return the bytes of a warp's rows of so many floats in shared memory; see ``rows::KeyOuter``."""
    return -(-_OUTER_ROWS * width * 4 // 16) * 16


def _registers(groups: int, accumulated: tuple[Accumulated, ...]) -> int:
    """Return the registers of a thread's accumulators of a key."""
    return sum(slots_of(one.width // groups, WARP) * one.registers for one in accumulated)


def _sorted_bytes(groups: int, threads: int) -> int:
    nbytes = 4 * (groups + 1 + threads) + 2 * (threads // WARP * groups + 2 * _ROWS * threads)
    return -(-nbytes // 16) * 16


@dataclass(frozen=True)
class SortedFold(KeyedFrame):
    """Kernel that folds rows in the order of their keys.

    Attributes
    ----------
    of_key : RowFunction
        The function that computes a row's key alone, by one thread.
    outer : OuterSum or None
        What is folded, where that is the matrix of two parts of a row, and nothing else.
    """

    of_key: RowFunction = field(kw_only=True)
    outer: OuterSum | None = None

    @property
    def header(self) -> str:
        """What the kernel includes."""
        return "sorted_keys"

    def _functions(self) -> list[str]:
        return [*super()._functions(), "#if !VISPARK_ALONE", *function_of_row(self.of_key, 1, ()), "#endif"]

    def _sorted(self, text: IndentedText) -> None:
        """Write the loop over some rows at a time: their keys, their order, and the folds of each key."""
        text.add("extern __shared__ __align__(16) unsigned char memory[];")
        threads, rows = self.table.block, _ROWS * self.table.block
        self._place_of_thread(text, _sorted_bytes(self.groups, threads))
        self._declare_range(text)
        text.add(f"typedef rows::SortedRows<{self.groups}, {threads}, {rows}> Sorted;", "Sorted sorted(memory);",
                 f"for (long long first = 0; first < work.count || first == 0; first += {rows}) {{",
                 f"const int count = rows::least(work.count - first, {rows});")
        self._keys(text)
        text.add("sorted.sort(count);", f"for (int key = group; key < {self.groups}; key += {threads // WARP}) {{",
                 "const int begin = sorted.starts[key], end = sorted.starts[key + 1];",
                 "if (begin == end && first) continue;")
        self._folds_of_key(text)
        text.add("}", "rows::barrier();", "}")
        for one in self.of_keys[1:]:
            text.add(f"rows::leave<1, 1, {threads}, {one.functor}>({self.key.base}_{one.guard}, "
                     f"(long long*)memory, &{one.guard});")

    @property
    def _rows_at_once(self) -> int:
        """Rows of a key that a warp reads before it folds them."""
        if len(self.function.lines) >= _FEW_LINES:
            return 1
        registers = _registers(self.groups, tuple(one for folded in self.folded for one in folded.accumulated))
        return next((rows for most, rows in _AT_ONCE if registers <= most), 1)

    def _flush(self, text: IndentedText, lanes: int) -> None:
        for folded in self.folded:
            for one in folded.accumulated:
                slots = slots_of(folded.port.count, lanes)
                text.add(*unrolled(slots), f"for (int j = 0; j < {slots}; ++j) {folded.name(one)}[j].flush();")

    def _keys(self, text: IndentedText) -> None:
        text.add(f"VISPARK_UNROLL_SOME({_KEYS_AT_ONCE if len(self.of_key.lines) < _FEW_LINES else 1})",
                 f"for (int place = threadIdx.x; place < count; place += {self.table.block}) {{",
                 "const long long row = first + place;", f"{self.key.c} {self.key.local};")
        inputs = {port.local: at_row(port, "row") for port in self.of_key.inputs}
        arguments = [*(inputs[port.local] for port in self.of_key.inputs), self.key.local,
                     *(declared.rpartition(" ")[2] for declared, _ in self.of_key.given)]
        text.add(f"{self.of_key.name}({', '.join(arguments)});",
                 f"const long long key = rows::key_of({self.key.local});")
        self._take_range(text)
        text.add("sorted.set(place, key);", "}")

    def _folds_of_key(self, text: IndentedText) -> None:
        cell = f"blockIdx.x * {self.groups}ll + key"
        text.add(f"if (lane == 0) {self.key.base}_counts[{cell}] = (first ? {self.key.base}_counts[{cell}] : 0) + "
                 "end - begin;")
        if self.outer is None:
            return self._folds_one_by_one(text, cell)
        (left, right), = self.outer.pairs
        row = next(port for port in self.function.inputs if port.local == left.row)
        sizes = (self.outer.high, self.outer.broad, left.first, right.first, row.count)
        tile = f"(float*)(memory + {_sorted_bytes(self.groups, self.table.block)} + group * Outer::BYTES)"
        text.add(f"typedef rows::KeyOuter<{', '.join(map(str, sizes))}> Outer;",
                 f"if (Outer::fails({tile}, {at_row(row, 'first')}, sorted.order, begin, end, {self.outer.partial} + "
                 f"({cell}) * {self.outer.high * self.outer.broad}, first == 0)) {{")
        self._folds_one_by_one(text, cell)
        text.add("}")

    def _folds_one_by_one(self, text: IndentedText, cell: str) -> None:
        for folded in self.folded:
            for one in folded.accumulated:
                text.add(f"{one.fold} {folded.name(one)}[{slots_of(folded.port.count, WARP)}];")
        text.add(f"VISPARK_UNROLL_SOME({self._rows_at_once})", "for (int place = begin; place < end; ++place) {",
                 "const long long row = first + sorted.order[place];")
        places = {port.local: at_row(port, "row") for port in self.function.inputs}
        places |= self._declared_results(text, WARP)
        text.add(self._call(places, lanes=True))
        self._take(text, WARP)
        # Floats are added up in double one by one, as all folds by key add them.
        self._flush(text, WARP)
        text.add("}")
        for folded in self.folded:
            for one in folded.accumulated:
                text.add(f"rows::leave_key<{one.functor}, {folded.port.count}>({folded.partial(one)} + ({cell}) * "
                         f"{folded.port.count}, {folded.name(one)}, first == 0);")
