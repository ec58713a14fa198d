"""Writer of the kernel that folds the results of a row function by key.

Where there are few cells, each thread has its own, in shared memory. Else each warp has cells for all groups, in shared
memory or, where they do not fit, in memory, and rows of the warp that have the same key take turns, in their order. At
the end the cells of a thread block are joined, in order.

Where there are so many that few warps would have room, and what is folded can be added up in any order
(``vispark/cells.h``), a thread block has cells together, in shared memory, or all thread blocks have, in memory that is
made ready first. Either way a fold gives the same bits each time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vispark.translate.codegen.scalar.interface import PreparingKernel
from vispark.translate.ir.folding import ACCUMULATOR_BYTES, Accumulated
from vispark.translate.kernels.row_function import Port
from vispark.translate.kernels.row_kernel import IndentedText, RowKernel, at_row, slots_of, unrolled
from vispark.translate.kernels.schedule import KeyCells


@dataclass(frozen=True)
class SharedCells:
    """Cells that all threads of a block, or of all blocks, fold into.

    Attributes
    ----------
    name, partial : str
        What the kernel calls them, and the partial that they become.
    one : Accumulated
        What they fold.
    far : bool
        Whether they are in memory, for all thread blocks.
    near : int
        The words of each that a thread block has in shared memory.
    side : int
        How many of them it has there at once.
    """

    name: str
    one: Accumulated
    partial: str
    far: bool
    near: int
    side: int

    @property
    def moves(self) -> bool:
        """Whether it depends on the numbers which words a thread block has in shared memory."""
        return self.far and 0 < self.near < self.one.words

    @property
    def in_block(self) -> str:
        """What those in shared memory are called."""
        return f"{self.name}_near" if self.far else self.name

    def at(self, cell: str, own: str) -> str:
        """Return a cell, as an expression; in shared memory it is the one numbered ``own``."""
        far = f"rows::cell_of({self.name}, {cell}, {self.one.width})"
        near = f"rows::cell_of({self.in_block}, {own}, {self.side})"
        if not self.moves:
            return near if self.near else far
        return f"rows::InBoth<{self.near}, {self.one.digits}>{{{near}, {far}, {self.name}_window}}"

    def started(self, threads: int) -> str:
        """Return the code that initialises the accumulators in shared memory before the first record."""
        return f"rows::start_cells<{self.one.cell}, {self.near}>({self.in_block}, {self.side}, threadIdx.x, {threads});"


@dataclass(frozen=True)
class KeyedFrame(RowKernel):
    """A kernel that folds by the keys that the port ``key`` gives, with ``cells`` for ``groups`` of them; ``of_keys``
    are their count and range.
    """

    key: Port = field(kw_only=True)
    groups: int = field(kw_only=True)
    of_keys: tuple[Accumulated, ...] = field(kw_only=True)
    cells: KeyCells = field(kw_only=True)

    @property
    def _cell_step(self) -> str:
        """How far a thread's cells are from each other."""
        return f" * {self.table.block}" if self.cells.place == "thread" else ""

    def _partials(self) -> list[str]:
        least, greatest = (f"long long* __restrict__ {self.key.base}_{one.guard}" for one in self.of_keys[1:])
        cells = ["rows::Word* scratch"] if self.cells.place == "device" else []
        return [f"long long* __restrict__ {self.key.base}_counts", least, greatest, *super()._partials(), *cells]

    @property
    def _is_shared(self) -> bool:
        return self.cells.place in ("block", "device")

    @property
    def header(self) -> str:
        """What the kernel includes."""
        return "cells" if self._is_shared else super().header

    @property
    def preparation(self) -> PreparingKernel | None:
        """The kernel that makes the cells of all blocks ready: a word that counts blocks, and the cells."""
        if self.cells.place != "device":
            return None
        words = 1 + sum(each.one.width * each.one.words for each in self._shared_cells())
        return PreparingKernel(f"{self.name}_cells", 8 * words, min(1024, -(-words // 4096)), 256)

    def _kernel(self) -> list[str]:
        first = self.preparation
        if first is None:
            return super()._kernel()
        text = IndentedText()
        # Where one thread does a work, the work has cells of its own.
        text.choose(together=lambda part: self._prepare(part, first.grid * 256))
        ports = ", ".join(["rows::Word* scratch", *(declared for declared, _ in self.function.given)])
        return ['extern "C" __global__ void', f"{first.name}({ports})", "{", *text.lines, "}", "", *super()._kernel()]

    def _prepare(self, text: IndentedText, threads: int) -> None:
        offset = 1
        text.add(f"const long long first = blockIdx.x * 256ll + threadIdx.x, step = {threads};",
                 "if (first == 0) scratch[0] = 0;")
        for cells in self._shared_cells():
            text.add(f"rows::start_cells<{cells.one.cell}>(scratch + {offset}, {cells.one.width}, first, step);")
            offset += cells.one.width * cells.one.words

    @property
    def _part(self) -> int:
        """The keys that a block's cells are for at once."""
        return -(-self.groups // self.cells.parts)

    def _shared_cells(self) -> list[SharedCells]:
        """Return the cells that threads have together."""
        key, device = self.key.base, self.cells.place == "device"
        every = [(f"{key}_cells", self.of_keys[0], f"{key}_counts"),
                 *((f"{folded.name(one)}_cells", one, folded.partial(one))
                   for folded in self.folded for one in folded.accumulated)]

        def near(one: Accumulated) -> int:
            if device and not self.cells.near:
                return 0
            return one.words if not device or self.cells.near >= one.digits else self.cells.near

        return [SharedCells(name, one, partial, device, near(one), one.width // self.groups * self._part)
                for name, one, partial in every]

    def _declare_shared_cells(self, text: IndentedText, offset: int) -> None:
        words = 1
        for cells in self._shared_cells():
            one = cells.one
            if cells.far:
                text.add(f"rows::Word* const {cells.name} = scratch + {words};")
                words += one.width * one.words
            if not cells.near:
                continue
            c = "rows::Word" if one.functor in ("Minimum", "Maximum") else "unsigned"
            text.add(f"{c}* const {cells.in_block} = ({c}*)(memory + {offset});")
            offset += -(-cells.side * cells.near * 8 // 16) * 16
            if cells.moves:
                text.add(f"__shared__ int {cells.name}_first;", f"if (threadIdx.x == 0) {cells.name}_first = -1;",
                         f"rows::Window {cells.name}_window(&{cells.name}_first);")
        if self.cells.parts > 1:
            text.add(f"for (int part = 0; part < {self.groups}; part += {self._part}) {{")
        started = [each.started(self.table.block) for each in self._shared_cells() if each.near]
        text.add(*started, *(["rows::barrier();"] if started else []))

    def _taken(self, one: Accumulated, name: str, cell: str, value: str, together: bool) -> str:
        """Fold a value into a cell."""
        if together:
            cells = next(each for each in self._shared_cells() if each.name == name)
            return f"{one.cell}::take({cells.at(cell, cell.replace('key', self._own_cell))}, {value});"
        return f"rows::take<{one.functor}, {one.of}>({name}[{cell}], {value});"

    @property
    def _own_cell(self) -> str:
        """The number of a key among the cells of a block, in C++."""
        return "part_key" if self.cells.parts > 1 else "key"

    # -- cells --------------------------------------------------------------------------------------------------------

    def _cells(self, counted: str = "long long") -> list[tuple[str, str, str, int, str]]:
        """Return name, C++ type and operator of each array of cells, how many there are, and the partial they become.
        """
        counts = [(f"{self.key.base}_cells", counted, "Add", self.groups, f"{self.key.base}_counts")]
        return counts + [(f"{folded.name(one)}_cells", one.accumulator, one.functor, one.width,
                          folded.partial(one)) for folded in self.folded for one in folded.accumulated]

    def _declare_cells(self, text: IndentedText, offset: int) -> None:
        block, by_thread = self.table.block, self.cells.place == "thread"
        for name, c, functor, width, partial in self._cells("unsigned int" if by_thread else "long long"):
            first_cell = {"thread": "threadIdx.x", "warp": f"threadIdx.x / 32 * {width}"}.get(self.cells.place)
            copies = block if by_thread else block // 32
            if first_cell:
                text.add(f"{c}* const {name} = ({c}*)(memory + {offset}) + {first_cell};")
                offset += -(-copies * width * ACCUMULATOR_BYTES[c] // 16) * 16
            else:
                text.add(f"{c}* const {name} = {partial} + blockIdx.x * {width}ll;")
            if self.cells.place == "thread":
                text.add(f"for (int i = 0; i < {width}; ++i) {name}[i{self._cell_step}] = {functor}::identity<{c}>();")
            else:
                text.add(f"rows::clear<{functor}, {width}>({name});")

    def _cell(self, text: IndentedText, lanes: int, apart: str = "", together: bool = False) -> None:
        """Fold one row's results into the cells of its key, which threads may have ``together``."""
        first = "if (lane == 0) " if lanes > 1 else ""
        text.add(first + (f"{self._shared_cells()[0].at('key', self._own_cell)}.count();" if together else
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
                text.add(*unrolled(slots),
                         f"for (int j = 0; j < {slots}; ++j) {guard}"
                         + self._taken(one, name, cell, f"{port.local}[j]", together))

    # -- frames -------------------------------------------------------------------------------------------------------

    def _fold_on_host(self, text: IndentedText) -> None:
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

    def _declare_range(self, text: IndentedText) -> None:
        text.add(*(f"{one.fold} {one.guard};" for one in self.of_keys[1:]))

    def _take_range(self, text: IndentedText) -> None:
        text.add(*(f"{one.guard}.take(key);" for one in self.of_keys[1:]))

    def _declared_results(self, text: IndentedText, lanes: int) -> dict[str, str]:
        text.add(f"{self.key.c} {self.key.local};")
        return {self.key.local: self.key.local} | super()._declared_results(text, lanes)

    def _declare_folds(self, text: IndentedText) -> None:
        self._declare_range(text)
        if self._is_shared:
            self._declare_shared_cells(text, self.cells_at)
        else:
            self._declare_cells(text, self.cells_at)

    @property
    def cells_at(self) -> int:
        """Where cells begin in shared memory: behind all else."""
        return 0 if self.table.kind == "flat" else self.products_at + sum(how.nbytes for _, how in self._multiplied)

    def _rows_of_tile(self, text: IndentedText) -> None:
        """Write the loop over all rows of a tile."""
        self._rows(text, "int", self._tile_places())

    def _direct(self, text: IndentedText) -> None:
        text.add("extern __shared__ __align__(16) unsigned char memory[];")
        self._place_of_thread(text, 0)
        self._declare_folds(text)
        text.add("const long long count = work.count;")
        self._rows(text, "long long", {port.local: at_row(port, "row") for port in self.function.inputs})
        self._store_results(text)

    def _flat(self, text: IndentedText) -> None:
        """Write the fold of numbers: several neighbouring ones by each thread, whose cells are a block's."""
        pack, block = self.table.stages, self.table.block
        text.add("extern __shared__ __align__(16) unsigned char memory[];")
        self._declare_folds(text)
        text.add(f"for (long long row = threadIdx.x * {pack}; row < work.count; row += {block * pack}) {{",
                 f"if (row + {pack} <= work.count) {{", *self._packs(pack), "VISPARK_UNROLL",
                 f"for (int i = 0; i < {pack}; ++i) {{")
        self._row(text, {port.local: f"{port.local}.item[i]" for port in self.function.inputs})
        text.add("}", "} else {", "for (long long last = row; last < work.count; ++last) {")
        self._row(text, {port.local: f"{port.base}[last]" for port in self.function.inputs})
        text.add("}", "}", "}")
        self._store_results(text)

    def _row(self, text: IndentedText, inputs: dict[str, str]) -> None:
        """Write the work of one row, whose cells need no waiting for other threads."""
        places = inputs | self._declared_results(text, self.table.lanes)
        text.add(self._call(places, lanes=True), f"const long long key = rows::key_of({self.key.local});")
        self._take_range(text)
        inside = f"key >= 0 && key < {self.groups}"
        if self.cells.parts > 1:
            text.add("const long long part_key = key - part;")
            inside = f"part_key >= 0 && part_key < {self._part} && key < {self.groups}"
        text.add(f"if ({inside}) {{")
        self._cell(text, self.table.lanes, self._cell_step, self._is_shared)
        text.add("}")

    def _rows(self, text: IndentedText, c: str, inputs: dict[str, str]) -> None:
        """Write the loop over some rows, counted in a C++ type; the threads of a warp stay together if they wait for
        each other.
        """
        table = self.table
        if self.cells.place == "thread" or self._is_shared:
            text.add(f"for ({c} row = {'group' if table.lanes > 1 else 'threadIdx.x'}; row < count; row += "
                     f"{table.groups}) {{")
            self._row(text, inputs)
            text.add("}")
            return
        text.add(f"for ({c} start = 0; start < count; start += {table.groups}) {{",
                 f"const {c} row = start + {'group' if table.lanes > 1 else 'threadIdx.x'};")
        places = inputs | self._declared_results(text, table.lanes)
        text.add("long long key = -1;", "if (row < count) {", self._call(places, lanes=True),
                 f"key = rows::key_of({self.key.local});")
        self._take_range(text)
        text.add("}", f"rows::Turns<{table.lanes}> turns(key >= 0 && key < {self.groups}, key);",
                 "while (turns.next()) {", "if (turns.is_own()) {")
        self._cell(text, table.lanes)
        text.add("}", "}", "}")

    @property
    def _flushes(self) -> bool:
        return False

    def _store_results(self, text: IndentedText) -> None:
        table = self.table
        if self._is_shared:
            self._store_shared_cells(text)
        for name, _, functor, width, partial in self._cells() if self.cells.place in ("thread", "warp") else ():
            text.add(f"rows::leave_{self.cells.place}_cells<{functor}, {width}, {table.block}>({partial}, {name});")
        # Behind the cells, as the range of the keys goes through the shared memory that these may begin with.
        for one in self.of_keys[1:]:
            text.add(f"rows::leave<1, 1, {table.block}, {one.functor}>({self.key.base}_{one.guard}, "
                     f"(long long*)memory, &{one.guard});")

    def _store_shared_cells(self, text: IndentedText) -> None:
        """Write the code that stores shared cells: a thread block's as its partial; those of all blocks by the last
        block.
        """
        cells, device, parts = self._shared_cells(), self.cells.place == "device", self.cells.parts > 1
        if any(each.near for each in cells):
            text.add("rows::barrier();")
        if device:
            for cell in cells:
                if cell.near:
                    count = cell.one.width // self.groups
                    first = f"{cell.name}_first" if cell.moves else "0"
                    text.add(f"rows::hand_on<{cell.near}>({cell.name}, {cell.one.width}, "
                             f"{f'part * {count}' if parts else '0'}, {cell.in_block}, {cell.side}, {first});")
            text.add(*(["}"] if parts else []), "const bool all = rows::comes_last(scratch);")
        for cell in cells:
            text.add(f"rows::leave_cells<{cell.one.cell}, {cell.one.functor}>({cell.partial}, {cell.name}, "
                     f"{cell.one.width}, {'all' if device else 'true'});")
