"""Writes the kernel that folds what a row function gives by key.

Where there are few cells, each thread has its own, in shared memory. Else each warp has cells for all groups, in shared
memory or, where they do not fit, in memory, and rows of the warp that have the same key take turns, in their order. At
the end the cells of a thread block are joined, in order. So a fold gives the same bits each time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vispark.translate.chain import Port
from vispark.translate.folding import ACCUMULATOR_BYTES, Accumulated
from vispark.translate.frames import Frame, Text, at_row, slots_of


@dataclass(frozen=True)
class KeyedFrame(Frame):
    """A kernel that folds by the keys that the port ``key`` gives; ``of_keys`` are their count and range.

    ``place`` says who has cells in shared memory: "thread", "warp", or "" where they are in memory.
    """

    key: Port = field(kw_only=True)
    groups: int = field(kw_only=True)
    of_keys: tuple[Accumulated, ...] = field(kw_only=True)
    place: str = field(kw_only=True)

    @property
    def _apart(self) -> str:
        """How far a thread's cells are from each other."""
        return f" * {self.table.block}" if self.place == "thread" else ""

    def _partials(self) -> list[str]:
        least, greatest = (f"long long* __restrict__ {self.key.base}_{one.guard}" for one in self.of_keys[1:])
        return [f"long long* __restrict__ {self.key.base}_counts", least, greatest, *super()._partials()]

    # -- cells --------------------------------------------------------------------------------------------------------

    def _cells(self, counted: str = "long long") -> list[tuple[str, str, str, int, str]]:
        """Name, C++ type and operator of each array of cells, how many there are, and the partial they become."""
        found = [(f"{self.key.base}_cells", counted, "Add", self.groups, f"{self.key.base}_counts")]
        return found + [(f"{folded.name(one)}_cells", one.accumulator, one.functor, one.width,
                         folded.partial(one)) for folded in self.folded for one in folded.accumulated]

    def _declare_cells(self, text: Text, offset: int) -> None:
        block = self.table.block
        for name, c, functor, width, partial in self._cells("unsigned int" if self.place == "thread" else "long long"):
            mine = {"thread": "threadIdx.x", "warp": f"threadIdx.x / 32 * {width}"}.get(self.place)
            copies = block if self.place == "thread" else block // 32
            if mine:
                text.add(f"{c}* const {name} = ({c}*)(memory + {offset}) + {mine};")
                offset += -(-copies * width * ACCUMULATOR_BYTES[c] // 16) * 16
            else:
                text.add(f"{c}* const {name} = {partial} + blockIdx.x * {width}ll;")
            if self.place == "thread":
                text.add(f"for (int i = 0; i < {width}; ++i) {name}[i{self._apart}] = {functor}::identity<{c}>();")
            else:
                text.add(f"rows::clear<{functor}, {width}>({name});")

    def _cell(self, text: Text, lanes: int, apart: str = "") -> None:
        """Fold one row's results into the cells of its key."""
        first = "if (lane == 0) " if lanes > 1 else ""
        text.add(f"{first}{self.key.base}_cells[key{apart}] += 1;")
        for folded in self.folded:
            port = folded.port
            for one in folded.accumulated:
                take = f"rows::take<{one.functor}, {one.of}>"
                name = f"{folded.name(one)}_cells"
                if port.number:
                    text.add(f"{first}{take}({name}[key{apart}], {port.local});")
                    continue
                column = f"j * {lanes} + lane" if lanes > 1 else "j"
                guard = f"if ({column} < {port.count}) " if port.count % lanes else ""
                cell = f"(key * {port.count} + {column}){apart}" if apart else f"key * {port.count} + {column}"
                text.add("VISPARK_UNROLL", f"for (int j = 0; j < {slots_of(port.count, lanes)}; ++j) {guard}{take}("
                                           f"{name}[{cell}], {port.local}[j]);")

    # -- frames -------------------------------------------------------------------------------------------------------

    def _fold_on_host(self, text: Text) -> None:
        for name, c, functor, width, partial in self._cells():
            text.add(f"{c}* __restrict__ const {name} = {partial} + blockIdx.x * {width}ll;",
                     f"for (int i = 0; i < {width}; ++i) {name}[i] = {functor}::identity<{c}>();")
        self._declare_range(text)
        text.add("for (long long row = 0; row < work.count; ++row) {")
        places = {port.local: at_row(port, "row") for port in self.function.inputs}
        places |= self._declared_results(text, 1) | self._products_on_host(text, places)
        text.add(self._call(places, lanes=False), f"const long long key = rows::key_of({self.key.local});")
        self._take_range(text)
        text.add(f"if (key >= 0 && key < {self.groups}) {{")
        self._cell(text, 1)
        text.add("}", "}")
        for one in self.of_keys[1:]:
            text.add(f"{self.key.base}_{one.guard}[blockIdx.x] = {one.guard}.value;")

    def _declare_range(self, text: Text) -> None:
        text.add(*(f"{one.fold} {one.guard};" for one in self.of_keys[1:]))

    def _take_range(self, text: Text) -> None:
        text.add(*(f"{one.guard}.take(key);" for one in self.of_keys[1:]))

    def _declared_results(self, text: Text, lanes: int) -> dict[str, str]:
        text.add(f"{self.key.c} {self.key.local};")
        return {self.key.local: self.key.local} | super()._declared_results(text, lanes)

    def _declare_folds(self, text: Text) -> None:
        self._declare_range(text)
        self._declare_cells(text, self.cells_at)

    @property
    def cells_at(self) -> int:
        """Where cells begin in shared memory: behind all else."""
        return self.products_at + sum(how.nbytes for _, how in self._multiplied)

    def _rows_of_tile(self, text: Text) -> None:
        """All rows of a tile; the threads of a warp go on together where they wait for each other."""
        table = self.table
        if self.place == "thread":
            text.add(f"for (int row = threadIdx.x; row < count; row += {table.groups}) {{")
            places = self._tile_places() | self._declared_results(text, 1)
            text.add(self._call(places, lanes=True), f"const long long key = rows::key_of({self.key.local});")
            self._take_range(text)
            text.add(f"if (key >= 0 && key < {self.groups}) {{")
            self._cell(text, 1, self._apart)
            text.add("}", "}")
            return
        text.add(f"for (int start = 0; start < count; start += {table.groups}) {{",
                 f"const int row = start + {'group' if table.lanes > 1 else 'threadIdx.x'};")
        places = self._tile_places() | self._declared_results(text, table.lanes)
        text.add("long long key = -1;", "if (row < count) {", self._call(places, lanes=True),
                 f"key = rows::key_of({self.key.local});")
        self._take_range(text)
        text.add("}", f"rows::Turns<{table.lanes}> turns(key >= 0 && key < {self.groups}, key);",
                 "while (turns.next()) {", "if (turns.mine()) {")
        self._cell(text, table.lanes)
        text.add("}", "}", "}")

    @property
    def _flushes(self) -> bool:
        return False

    def _leave(self, text: Text) -> None:
        table = self.table
        for one in self.of_keys[1:]:
            text.add(f"rows::leave<1, 1, {table.block}, {one.functor}>({self.key.base}_{one.guard}, "
                     f"(long long*)memory, &{one.guard});")
        for name, _, functor, width, partial in self._cells() if self.place else ():
            text.add(f"rows::leave_{self.place}_cells<{functor}, {width}, {table.block}>({partial}, {name});")
