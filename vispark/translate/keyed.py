"""Writes the kernel that folds what a row function gives by key.

Each warp has cells of its own for all groups, in shared memory where they fit, and folds its rows into them. Rows of a
warp that have the same key take turns, in their order; so a fold gives the same bits each time. At the end the cells of
a thread block's warps are joined, in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vispark.translate.chain import Port
from vispark.translate.folding import ACCUMULATOR_BYTES, Accumulated
from vispark.translate.frames import Frame, Text, at_row, slots_of


@dataclass(frozen=True)
class KeyedFrame(Frame):
    """A kernel that folds by the keys that the port ``key`` gives; ``of_keys`` are their count and range."""

    key: Port = field(kw_only=True)
    groups: int = field(kw_only=True)
    of_keys: tuple[Accumulated, ...] = field(kw_only=True)
    in_shared: bool = field(kw_only=True)

    def _partials(self) -> list[str]:
        least, greatest = (f"long long* __restrict__ {self.key.base}_{one.guard}" for one in self.of_keys[1:])
        return [f"long long* __restrict__ {self.key.base}_counts", least, greatest, *super()._partials()]

    # -- cells --------------------------------------------------------------------------------------------------------

    def _cells(self) -> list[tuple[str, str, str, int, str]]:
        """Name, C++ type and operator of each array of cells, how many there are, and the partial they become."""
        found = [(f"{self.key.base}_cells", "long long", "Add", self.groups, f"{self.key.base}_counts")]
        return found + [(f"{folded.name(one)}_cells", one.accumulator, one.functor, one.width,
                         folded.partial(one)) for folded in self.folded for one in folded.accumulated]

    def _declare_cells(self, text: Text, offset: int) -> None:
        warps = self.table.block // 32
        for name, c, functor, width, partial in self._cells():
            if self.in_shared:
                text.add(f"{c}* const {name} = ({c}*)(memory + {offset}) + threadIdx.x / 32 * {width};")
                offset += -(-warps * width * ACCUMULATOR_BYTES[c] // 16) * 16
            else:
                text.add(f"{c}* const {name} = {partial} + blockIdx.x * {width}ll;")
            text.add(f"rows::clear<{functor}, {width}>({name});")

    def _cell(self, text: Text, lanes: int) -> None:
        """Fold one row's results into the cells of its key."""
        first = "if (lane == 0) " if lanes > 1 else ""
        text.add(f"{first}{self.key.base}_cells[key] += 1;")
        for folded in self.folded:
            port = folded.port
            for one in folded.accumulated:
                take = f"rows::take<{one.functor}, {one.of}>"
                name = f"{folded.name(one)}_cells"
                if port.number:
                    text.add(f"{first}{take}({name}[key], {port.local});")
                    continue
                column = f"j * {lanes} + lane" if lanes > 1 else "j"
                guard = f"if ({column} < {port.count}) " if port.count % lanes else ""
                text.add("VISPARK_UNROLL", f"for (int j = 0; j < {slots_of(port.count, lanes)}; ++j) {guard}{take}("
                                           f"{name}[key * {port.count} + {column}], {port.local}[j]);")

    # -- frames -------------------------------------------------------------------------------------------------------

    def _fold_on_host(self, text: Text) -> None:
        for name, c, functor, width, partial in self._cells():
            text.add(f"{c}* __restrict__ const {name} = {partial} + blockIdx.x * {width}ll;",
                     f"for (int i = 0; i < {width}; ++i) {name}[i] = {functor}::identity<{c}>();")
        self._declare_range(text)
        text.add("for (long long row = 0; row < work.count; ++row) {")
        places = {port.local: at_row(port, "row") for port in self.function.inputs}
        places |= self._declared_results(text, 1)
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
        """Where cells begin in shared memory: behind the tiles and the rows' own arrays."""
        tiles = self.table.stages * sum(self._tile_bytes(port) for port in self.function.inputs)
        return -(-(tiles + self.table.groups * self.function.scratch) // 16) * 16

    def _rows_of_tile(self, text: Text) -> None:
        """All rows of a tile; the threads of a warp go on together, as they wait for each other."""
        table = self.table
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
        if self.in_shared:
            for name, _, functor, width, partial in self._cells():
                text.add(f"rows::leave_cells<{functor}, {width}, {table.block}>({partial}, {name});")
