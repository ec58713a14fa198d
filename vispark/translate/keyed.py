"""Writes the kernel that folds what a row function gives by key.

Where there are few cells, each thread has its own, in shared memory. Else each warp has cells for all groups, in shared
memory or, where they do not fit, in memory, and rows of the warp that have the same key take turns, in their order. At
the end the cells of a thread block are joined, in order.

Where there are so many that few warps would have room, and what is folded can be added up in any order
(``vispark/cells.h``), a thread block has cells together, in shared memory, or all thread blocks have, in memory that is
made ready first. Either way a fold gives the same bits each time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vispark.translate.chain import Port
from vispark.translate.folding import ACCUMULATOR_BYTES, Accumulated
from vispark.translate.frames import Frame, Text, at_row, slots_of
from vispark.translate.interface import Preparation

#: The most numbers of a thread that are folded by code for each; more would take minutes to compile.
_WRITTEN_OUT = 64


@dataclass(frozen=True)
class KeyedFrame(Frame):
    """A kernel that folds by the keys that the port ``key`` gives; ``of_keys`` are their count and range.

    ``place`` says who has cells in shared memory: "thread", "warp" or "block"; "device" is memory that all blocks
    share, and "" memory of each warp's own.
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
        made = ["rows::Word* made"] if self.place == "device" else []
        return [f"long long* __restrict__ {self.key.base}_counts", least, greatest, *super()._partials(), *made]

    @property
    def _together(self) -> bool:
        return self.place in ("block", "device")

    @property
    def header(self) -> str:
        """What the kernel includes."""
        return "cells" if self._together else super().header

    @property
    def preparation(self) -> Preparation | None:
        """The kernel that makes the cells of all blocks ready: a word that counts blocks, and the cells."""
        if self.place != "device":
            return None
        words = 1 + sum(width * one.words for _, one, width, _ in self._shared_cells())
        return Preparation(f"{self.name}_cells", 8 * words, min(1024, -(-words // 4096)), 256)

    def _kernel(self) -> list[str]:
        first = self.preparation
        if first is None:
            return super()._kernel()
        text, offset = Text(), 1
        text.add(f"const long long first = blockIdx.x * 256ll + threadIdx.x, step = {first.grid * 256};",
                 "if (first == 0) made[0] = 0;")
        for _, one, width, _ in self._shared_cells():
            text.add(f"rows::start_cells<{one.cell}>(made + {offset}, {width}, first, step);")
            offset += width * one.words
        given = ", ".join(["rows::Word* made", *(declared for declared, _ in self.function.given)])
        return ['extern "C" __global__ void', f"{first.name}({given})", "{", *text.lines, "}", "", *super()._kernel()]

    def _shared_cells(self) -> list[tuple[str, Accumulated, int, str]]:
        """Name, fold and number of the cells that threads have together, and the partial they become."""
        return [(f"{self.key.base}_cells", self.of_keys[0], self.groups, f"{self.key.base}_counts"),
                *((f"{folded.name(one)}_cells", one, one.width, folded.partial(one))
                  for folded in self.folded for one in folded.accumulated)]

    def _declare_shared_cells(self, text: Text, offset: int) -> None:
        words = 1
        for name, one, width, _ in self._shared_cells():
            if self.place == "device":
                text.add(f"rows::Word* const {name} = made + {words};")
                words += width * one.words
            else:
                text.add(f"rows::Word* const {name} = (rows::Word*)(memory + {offset});",
                         f"rows::start_cells<{one.cell}>({name}, {width}, threadIdx.x, {self.table.block});")
                offset += -(-width * one.words * 8 // 16) * 16
        if self.place == "block":
            text.add("rows::barrier();")

    def _taken(self, one: Accumulated, name: str, cell: str, value: str, together: bool) -> str:
        """Fold a value into a cell."""
        if together:
            return f"{one.cell}::take({name} + ({cell}) * {one.words}, {value});"
        return f"rows::take<{one.functor}, {one.of}>({name}[{cell}], {value});"

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

    def _cell(self, text: Text, lanes: int, apart: str = "", together: bool = False) -> None:
        """Fold one row's results into the cells of its key, which threads may have ``together``."""
        first = "if (lane == 0) " if lanes > 1 else ""
        text.add(first + (f"atomicAdd({self.key.base}_cells + key, 1ull);" if together else
                          f"{self.key.base}_cells[key{apart}] += 1;"))
        for folded in self.folded:
            port = folded.port
            for one in folded.accumulated:
                name = f"{folded.name(one)}_cells"
                if port.number:
                    text.add(first + self._taken(one, name, f"key{apart}", port.local, together))
                    continue
                column = f"j * {lanes} + lane" if lanes > 1 else "j"
                guard = f"if ({column} < {port.count}) " if port.count % lanes else ""
                cell = f"(key * {port.count} + {column}){apart}" if apart else f"key * {port.count} + {column}"
                slots = slots_of(port.count, lanes)
                text.add(*(["VISPARK_UNROLL"] if slots <= _WRITTEN_OUT else []),
                         f"for (int j = 0; j < {slots}; ++j) {guard}"
                         + self._taken(one, name, cell, f"{port.local}[j]", together))

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
        if self._together:
            self._declare_shared_cells(text, self.cells_at)
        else:
            self._declare_cells(text, self.cells_at)

    @property
    def cells_at(self) -> int:
        """Where cells begin in shared memory: behind all else."""
        return self.products_at + sum(how.nbytes for _, how in self._multiplied)

    def _rows_of_tile(self, text: Text) -> None:
        """All rows of a tile."""
        self._rows(text, "int", self._tile_places())

    def _direct(self, text: Text) -> None:
        text.add("extern __shared__ __align__(16) unsigned char memory[];")
        self._place_of_thread(text, 0)
        self._declare_folds(text)
        text.add("const long long count = work.count;")
        self._rows(text, "long long", {port.local: at_row(port, "row") for port in self.function.inputs})
        self._leave(text)

    def _rows(self, text: Text, c: str, inputs: dict[str, str]) -> None:
        """Some rows, counted in a C++ type; the threads of a warp go on together where they wait for each other."""
        table = self.table
        if self.place == "thread" or self._together:
            text.add(f"for ({c} row = {'group' if table.lanes > 1 else 'threadIdx.x'}; row < count; row += "
                     f"{table.groups}) {{")
            places = inputs | self._declared_results(text, table.lanes)
            text.add(self._call(places, lanes=True), f"const long long key = rows::key_of({self.key.local});")
            self._take_range(text)
            text.add(f"if (key >= 0 && key < {self.groups}) {{")
            self._cell(text, table.lanes, self._apart, self._together)
            text.add("}", "}")
            return
        text.add(f"for ({c} start = 0; start < count; start += {table.groups}) {{",
                 f"const {c} row = start + {'group' if table.lanes > 1 else 'threadIdx.x'};")
        places = inputs | self._declared_results(text, table.lanes)
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
        if self._together:
            text.add("const bool all = rows::comes_last(made);" if self.place == "device" else "rows::barrier();")
            for name, one, width, partial in self._shared_cells():
                text.add(f"rows::leave_cells<{one.cell}, {one.functor}>({partial}, {name}, {width}, "
                         f"{'all' if self.place == 'device' else 'true'});")
        for one in self.of_keys[1:]:
            text.add(f"rows::leave<1, 1, {table.block}, {one.functor}>({self.key.base}_{one.guard}, "
                     f"(long long*)memory, &{one.guard});")
        for name, _, functor, width, partial in self._cells() if self.place in ("thread", "warp") else ():
            text.add(f"rows::leave_{self.place}_cells<{functor}, {width}, {table.block}>({partial}, {name});")
