"""Writer of the kernel around a row function: rows brought in and taken out, accumulators joined.

On a GPU a thread block does one work, in tiles that lie in shared memory while the next one is on its way. On the host
one OS thread does one work, row after row. See ``vispark/rows.h`` for the C++ functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vispark.translate.codegen.scalar.prelude import prelude_for
from vispark.translate.codegen.scalar.target import by_schedule
from vispark.translate.ir.folding import Accumulated
from vispark.translate.kernels.row_function import Port, RowFunction
from vispark.translate.kernels.row_matmul import Product, ProductRow
from vispark.translate.kernels.schedule import (
    FLUSHED,
    TOGETHER,
    WARP,
    Multiplied,
    Table,
    multiplied,
    staged_bytes,
    stride_of,
)

#: The most numbers of a thread that are folded by code for each; more would take minutes to compile.
_WRITTEN_OUT = 64


@dataclass
class IndentedText:
    """Lines with their depth."""

    lines: list[str] = field(default_factory=list)
    depth: int = 1

    def add(self, *lines: str) -> None:
        """Add lines of code; a closing brace at the start and an opening one at the end of a line change the indent."""
        for line in lines:
            if line.startswith("}"):
                self.depth -= 1
            self.lines.append(line if line.startswith("#") or not line else "    " * self.depth + line)
            if line.endswith("{"):
                self.depth += 1

    def choose(self, alone: Callable[[IndentedText], None] | None = None,
               together: Callable[[IndentedText], None] | None = None) -> None:
        """Add what two functions write, for the two schedules of :func:`by_schedule`."""
        parts = []
        for write in (alone, together):
            part = IndentedText(depth=self.depth)
            if write is not None:
                write(part)
            parts.append(part.lines)
        self.lines += by_schedule(*parts)


@dataclass(frozen=True)
class AccumulatedField:
    """A field of the row function that goes into accumulators."""

    port: Port
    accumulated: tuple[Accumulated, ...]

    def name(self, one: Accumulated) -> str:
        """Return the array of a thread's accumulators."""
        return f"{self.port.base}_{ {'': 'folds', 'overflow': 'sizes', 'nan': 'nans'}[one.guard]}".replace(" ", "")

    def partial(self, one: Accumulated) -> str:
        """Return the kernel's parameter for a work's accumulators."""
        return f"{self.name(one)}_partial"


@dataclass(frozen=True)
class RowKernel:
    """Kernel over rows: its row functions for the GPU and the host, its schedule, and its folds."""

    name: str
    function: RowFunction
    host: RowFunction
    table: Table
    folded: tuple[AccumulatedField, ...] = ()

    def source(self) -> str:
        """Return the source."""
        text = "\n".join([*self._functions(), "", *self._kernel()]) + "\n"
        helpers = prelude_for(text)
        return f"#include \"vispark/{self.header}.h\"\n\n" + (helpers + "\n" if helpers else "") + text

    def _functions(self) -> list[str]:
        """Return the C++ functions of a row, for the host and for a GPU."""
        functions = function_of_row(self.function, self.table.lanes, self.folded)
        if self.function is self.host:
            return functions
        return by_schedule(function_of_row(self.host, 1, self.folded), functions)

    @property
    def header(self) -> str:
        """What the kernel includes."""
        return self._products_header or "rows"

    @property
    def _products_header(self) -> str:
        """What a kernel with products includes; "" without."""
        if not self.host.products:
            return ""
        return "tensor_products" if any(how.tensor for _, how in self._multiplied) else "products"

    # -- the kernel ---------------------------------------------------------------------------------------------------

    @property
    def ports(self) -> tuple[Port, ...]:
        """The kernel's ports."""
        return (*self.function.inputs, *(() if self.folds else self.function.outputs))

    @property
    def folds(self) -> bool:
        """Whether what the row function gives is folded."""
        return bool(self.folded)

    def _kernel(self) -> list[str]:
        declared = ["const long long* __restrict__ works", "void* const* __restrict__ ports", *self._partials(),
                    *(declared for declared, _ in self.function.given)]
        text = IndentedText()
        if self.workspace:
            declared.append("unsigned char* __restrict__ workspaces")
            scratch = "unsigned char* const scratch = workspaces"
            text.choose(lambda part: part.add(f"{scratch} + blockIdx.x * {self.workspace}ll;"),
                        lambda part: part.add(f"{scratch} + (blockIdx.x * {self.table.block}ll + threadIdx.x) * "
                                              f"{self.workspace};"))
        ports = (*self.ports, *self.function.flats)
        text.add(f"const rows::Work work(works, ports, {len(ports)});")
        for number, port in enumerate(ports):
            const = "" if port.output else "const "
            text.add(f"{const}{port.c}* __restrict__ const {port.base} = work.of<{const}{port.c}>({number}, "
                     f"{port.count});")
        text.choose(self._alone, getattr(self, f"_{self.table.kind}"))
        bounds = f"{self.table.block}, {self.table.resident}"
        return [f'extern "C" __global__ void __launch_bounds__({bounds})', f"{self.name}({', '.join(declared)})", "{",
                *text.lines, "}"]

    @property
    def workspace(self) -> int:
        """Bytes of device memory that each thread has for arrays of a row's own."""
        return self.function.scratch if self.table.lanes == 1 else 0

    def _partials(self) -> list[str]:
        """Return the parameters for what a work leaves of a fold."""
        return [f"{one.accumulator}* __restrict__ {folded.partial(one)}" for folded in self.folded
                for one in folded.accumulated]

    def _call(self, places: dict[str, str], lanes: bool) -> str:
        """Return a call of the row function; ``places`` are its inputs and outputs by their names."""
        arguments = [places[port.local] for port in (*self.function.inputs, *self.function.outputs)]
        arguments += [places[factor.name] for factor in (self.function if lanes else self.host).factors]
        arguments += [places[product.name] for product in self.function.products]
        arguments += [places[stage.name] for stage in (self.function if lanes else self.host).stages]
        arguments += [_last_word(declared) for declared, _ in self.function.given]
        arguments += [port.base for port in self.function.flats]
        if lanes and self.table.lanes > 1:
            arguments += ["lane", "scratch"]
        elif self.workspace:
            arguments += ["scratch"]
        return f"{self.function.name}({', '.join(arguments)});"

    def _call_stage(self, stage: ProductRow, product: Product, places: dict[str, str], lanes: bool) -> str:
        """Return a call of the stage before a product."""
        arguments = [places[port.local] for port in self.function.inputs] + [places[stage.name]]
        arguments += [places[one.name] for one in _before(self.function, product)]
        stages = (self.function if lanes else self.host).stages
        arguments += [places[one.name] for one in stages[:stages.index(stage)]]
        arguments += [_last_word(declared) for declared, _ in self.function.given]
        arguments += [port.base for port in self.function.flats]
        if lanes and self.table.lanes > 1:
            arguments += ["lane", "scratch"]
        elif self.workspace:
            arguments += ["scratch"]
        return f"{self.function.name}_{stage.name}({', '.join(arguments)});"

    # -- on the host --------------------------------------------------------------------------------------------------

    def _alone(self, text: IndentedText) -> None:
        text.add("if (threadIdx.x != 0) return;")
        self._on_host(text)

    def _on_host(self, text: IndentedText) -> None:
        self._matrices_on_host(text)
        if self.folds:
            self._fold_on_host(text)
            return
        places = {port.local: at_row(port, "row") for port in self.ports}
        if self.host.products:
            text.add("for (long long row = 0; row < work.count; ++row) {")
            text.add(self._call(places | self._products_on_host(text, places), lanes=False), "}")
            return
        text.add(*([] if self.workspace else ["VISPARK_EACH"]), "for (long long row = 0; row < work.count; ++row)",
                 "    " + self._call(places, lanes=False))

    def _matrices_on_host(self, text: IndentedText) -> None:
        for product in self.host.products:
            text.add(f"const rows::Turned<{matrix_type(product)}, {product.c}> {product.name}_matrix({{"
                     f"{product.matrix}}});")

    def _products_on_host(self, text: IndentedText, places: dict[str, str]) -> dict[str, str]:
        """Write the products of one row; return the names of the arrays that have them."""
        for product in self.host.products:
            stage = self.host.row_of(product)
            if isinstance(stage, ProductRow):
                text.add(f"{stage.c} {stage.name}[{stage.count}];")
                places = places | {stage.name: stage.name}
                text.add(self._call_stage(stage, product, places, lanes=False))
            text.add(f"{product.c} {product.name}[{product.width}];",
                     f"{product.name}_matrix.row({product.name}, {places[product.row]} + {product.first});")
            places = places | {product.name: product.name}
        return {product.name: product.name for product in self.host.products} | {
            stage.name: stage.name for stage in self.host.stages}

    def _fold_on_host(self, text: IndentedText) -> None:
        """Write the fold of rows one after the other, of numbers of as many at once as fit a few vectors, each with an
        accumulator of its own.
        """
        rows = self.host.products or any(not folded.port.number for folded in self.folded)
        together = 1 if rows or self.workspace else TOGETHER
        columns = {folded.port.local: together if folded.port.number else folded.port.count for folded in self.folded}
        for folded in self.folded:
            for one in folded.accumulated:
                text.add(f"rows::Columns<{one.functor}, {one.of}, {one.element}, {one.accumulator}, "
                         f"{columns[folded.port.local]}> {folded.name(one)};")
        text.add(f"for (long long first = 0; first < work.count; first += {together}) {{")
        for folded in self.folded:
            text.add(f"{folded.port.c} {folded.port.local}[{columns[folded.port.local]}];")
        row, count = "first", ""
        if together > 1:
            row, count = "(first + i)", ", count"
            text.add(f"const int count = rows::least(work.count - first, {together});", "VISPARK_EACH",
                     "for (int i = 0; i < count; ++i)")
        places = {port.local: at_row(port, row) for port in self.function.inputs}
        places |= self._products_on_host(text, places)
        places |= {folded.port.local: f"{folded.port.local}[{'i' if together > 1 else '0'}]" if folded.port.number else
                   folded.port.local for folded in self.folded}
        text.add(("    " if together > 1 else "") + self._call(places, lanes=False))
        for folded in self.folded:
            for one in folded.accumulated:
                text.add(f"{folded.name(one)}.take({folded.port.local}{count});")
        if self._flushes:
            turn = "first" if together == 1 else f"first / {together}"
            text.add(f"if ({turn} % {FLUSHED} == {FLUSHED - 1}) {{")
            text.add(*(f"{folded.name(one)}.flush();" for folded in self.folded for one in folded.accumulated), "}")
        text.add("}")
        for folded in self.folded:
            for one in folded.accumulated:
                text.add(f"rows::leave_alone<{one.functor}, {one.width}>({folded.partial(one)}, {folded.name(one)});")

    # -- accumulators -------------------------------------------------------------------------------------------------

    def _declared_results(self, text: IndentedText, lanes: int) -> dict[str, str]:
        """Declare variables for what the row function gives, and return their names."""
        for folded in self.folded:
            port = folded.port
            text.add(f"{port.c} {port.local};" if port.number else
                     f"{port.c} {port.local}[{slots_of(port.count, lanes)}];")
        return {folded.port.local: folded.port.local for folded in self.folded}

    def _take(self, text: IndentedText, lanes: int, item: str = "") -> None:
        """Fold the results of the row function into the accumulators."""
        for folded in self.folded:
            port = folded.port
            for one in folded.accumulated:
                name = folded.name(one)
                if port.number:
                    guard = "if (lane == 0) " if lanes > 1 else ""
                    text.add(f"{guard}{name}[0].take({port.local}{item});")
                    continue
                slots = slots_of(port.count, lanes)
                guard = f"if (j * {lanes} + lane < {port.count}) " if port.count % lanes else ""
                text.add(*unrolled(slots), f"for (int j = 0; j < {slots}; ++j) {guard}{name}[j].take({port.local}[j]);")

    def _flush(self, text: IndentedText, lanes: int) -> None:
        for folded in self.folded:
            for one in folded.accumulated:
                slots = slots_of(one.width, lanes)
                text.add(*unrolled(slots), f"for (int j = 0; j < {slots}; ++j) {folded.name(one)}[j].flush();")

    @property
    def _flushes(self) -> bool:
        return any(one.fold == "rows::Fold<Add, Value, float, double>" for folded in self.folded
                   for one in folded.accumulated)

    def _declare_folds(self, text: IndentedText) -> None:
        for folded in self.folded:
            for one in folded.accumulated:
                text.add(f"{one.fold} {folded.name(one)}[{slots_of(one.width, self.table.lanes)}];")

    def _store_results(self, text: IndentedText) -> None:
        for folded in self.folded:
            for one in folded.accumulated:
                text.add(f"rows::leave<{self.table.lanes}, {one.width}, {self.table.block}, {one.functor}>("
                         f"{folded.partial(one)}, ({one.accumulator}*)memory, {folded.name(one)});")

    # -- elements that are numbers ------------------------------------------------------------------------------------

    def _flat(self, text: IndentedText) -> None:
        pack, block = self.table.stages, self.table.block
        if self.folded:
            text.add("extern __shared__ __align__(16) unsigned char memory[];")
        self._declare_folds(text)
        if self._flushes:
            text.add("int turn = 0;")
        text.add(f"for (long long row = threadIdx.x * {pack}; row < work.count; row += {block * pack}) {{")
        text.add(f"if (row + {pack} <= work.count) {{")
        text.add(*self._packs(pack))
        for port in self.function.outputs:
            text.add(f"rows::Pack<{port.c}, {pack}> {port.local};")
        call = self._call({port.local: f"{port.local}.item[i]" for port in
                           (*self.function.inputs, *self.function.outputs)}, lanes=True)
        if self.folded:
            text.add("VISPARK_UNROLL", f"for (int i = 0; i < {pack}; ++i) {{", call)
            self._take(text, 1, ".item[i]")
            text.add("}")
        else:
            text.add("VISPARK_UNROLL", f"for (int i = 0; i < {pack}; ++i) {call}")
            for port in self.function.outputs:
                text.add(f"*(rows::Pack<{port.c}, {pack}>*)({port.base} + row) = {port.local};")
        text.add("} else {", "for (long long last = row; last < work.count; ++last) {")
        places = {port.local: f"{port.base}[last]" for port in self.ports}
        if self.folded:
            places |= self._declared_results(text, 1)
        text.add(self._call(places, lanes=True))
        self._take(text, 1)
        text.add("}", "}")
        if self._flushes:
            text.add(f"if (++turn % {max(1, FLUSHED // pack)} == 0) {{")
            self._flush(text, 1)
            text.add("}")
        text.add("}")
        self._store_results(text)

    def _packs(self, pack: int) -> list[str]:
        """Return some neighbouring elements of each input, which are read at once."""
        return [f"const rows::Pack<{port.c}, {pack}> {port.local} = *(const rows::Pack<{port.c}, {pack}>*)("
                f"{port.base} + row);" for port in self.function.inputs]

    # -- rows through shared memory -----------------------------------------------------------------------------------

    def _tiled(self, text: IndentedText) -> None:
        table = self.table
        text.add("extern __shared__ __align__(16) unsigned char memory[];")
        offset = 0
        for port in self.function.inputs:
            text.add(f"{port.c}* const {port.local}_tiles = ({port.c}*)(memory + {offset});")
            offset += table.stages * self._tile_bytes(port)
        results = [port for port in self._stored if not port.number]
        for port in results:
            text.add(f"{port.c}* const {port.local}_tile = ({port.c}*)(memory + {offset});")
            offset += self._tile_bytes(port)
        self._place_of_thread(text, offset)
        self._declare_products(text)
        self._declare_folds(text)
        text.add(f"for (int ahead = 0; ahead < {table.stages - 1}; ++ahead) {{")
        self._fetch(text, f"ahead * {table.tile}ll", "ahead")
        text.add("}", "int turn = 0;",
                 f"for (long long first = 0; first < work.count; first += {table.tile}, ++turn) {{")
        if table.stages == 1:
            text.add("rows::barrier();")
            self._fetch(text, "first", "0")
            text.add("rows::wait_for_groups<0>();", "rows::barrier();")
        else:
            text.add(f"rows::wait_for_groups<{table.stages - 2}>();", "rows::barrier();")
            self._fetch(text, f"first + {(table.stages - 1) * table.tile}",
                        f"(turn + {table.stages - 1}) % {table.stages}")
        text.add(f"const int count = rows::least(work.count - first, {table.tile});")
        self._multiply(text)
        self._rows_of_tile(text)
        if self._flushes:
            text.add(f"if (turn % {self._flush_turns} == {self._flush_turns - 1}) {{")
            self._flush(text, table.lanes)
            text.add("}")
        if results:
            text.add("rows::barrier();")
            for port in results:
                text.add(f"rows::give<{port.count}, {stride_of(port)}, {table.block}>({port.base} + first * "
                         f"{port.count}, {port.local}_tile, count);")
        text.add("}")
        self._store_results(text)

    @property
    def _multiplied(self) -> list[tuple[Product, Multiplied]]:
        table = self.table
        return [(product, multiplied(product, table.tile, table.block, self.function))
                for product in self.function.products]

    @property
    def products_at(self) -> int:
        """Where products begin in shared memory: behind the tiles and the rows' own arrays."""
        tiles = self.table.stages * sum(self._tile_bytes(port) for port in self.function.inputs)
        tiles += sum(self._tile_bytes(port) for port in self._stored if not port.number)
        return -(-(tiles + self.table.groups * self.function.scratch) // 16) * 16

    @property
    def behind_products(self) -> int:
        """What of shared memory tiles, rows' own arrays, products and stages take."""
        stages = sum(staged_bytes(stage, self.table.tile) for stage in self.function.stages)
        return self.products_at + sum(how.nbytes for _, how in self._multiplied) + stages

    def _declare_products(self, text: IndentedText) -> None:
        offset = self.products_at
        for product, how in self._multiplied:
            port = self.function.row_of(product)
            text.add(f"typedef rows::{'Tensor' if how.tensor else ''}Multiply<{matrix_type(product)}, {how.rows}, "
                     f"{stride_of(port)}, {product.first}, "
                     f"{how.apart}, {self.table.block}, {how.most}, {how.high}, {how.broad}, {how.read}> "
                     f"{product.name}_multiply;",
                     f"{product.c}* const {product.name}_part = ({product.c}*)(memory + {offset});",
                     f"{product.c}* const {product.name}_tile = ({product.c}*)(memory + {offset + how.matrix_bytes});",
                     f"{product.name}_multiply::bring({product.name}_part, {{{product.matrix}}});")
            offset += how.nbytes
        for stage in self.function.stages:
            text.add(f"{stage.c}* const {stage.name}_tile = ({stage.c}*)(memory + {offset});")
            offset += staged_bytes(stage, self.table.tile)

    def _multiply(self, text: IndentedText) -> None:
        """Write the matrix products of all rows of a tile, which precede the row function."""
        places = self._tile_places()
        for product in self.function.products:
            stage = self.function.row_of(product)
            if isinstance(stage, ProductRow):
                self._stage_tile(text, stage, product, places)
            tile = places[product.row].partition(" + row * ")[0]
            text.add(f"{product.name}_multiply::tile({product.name}_tile, {tile}, {product.name}_part, "
                     f"{{{product.matrix}}});")
        if self.function.products:
            text.add("rows::barrier();")

    def _stage_tile(self, text: IndentedText, stage: ProductRow, product: Product, places: dict[str, str]) -> None:
        """Write the computation of a stage's rows of a tile from the products before it."""
        table = self.table
        if _before(self.function, product):
            text.add("rows::barrier();")
        text.add(f"for (int row = {'group' if table.lanes > 1 else 'threadIdx.x'}; row < count; row += {table.groups})",
                 "    " + self._call_stage(stage, product, places, lanes=True), "rows::barrier();")

    @property
    def _stored(self) -> tuple[Port, ...]:
        """Outputs that go through a tile of their own."""
        return self.function.outputs if not self.folds and self.table.lanes < WARP else ()

    @property
    def _flush_turns(self) -> int:
        return max(1, FLUSHED // -(-self.table.tile // self.table.groups))

    def _tile_bytes(self, port: Port) -> int:
        return -(-self.table.tile * stride_of(port) * port.itemsize // 16) * 16

    def _place_of_thread(self, text: IndentedText, offset: int) -> None:
        lanes = self.table.lanes
        if lanes == 1:
            return
        text.add(f"const int lane = threadIdx.x % {lanes}, group = threadIdx.x / {lanes};")
        scratch = f"memory + {offset} + group * {self.function.scratch}" if self.function.scratch else "nullptr"
        text.add(f"unsigned char* const scratch = {scratch};")

    def _fetch(self, text: IndentedText, first: str, stage: str) -> None:
        """Start to bring in a tile; a group of copies ends also where there is none."""
        for port in self.function.inputs:
            tile = f"{port.local}_tiles" if stage == "0" else \
                f"{port.local}_tiles + {stage if stage.isidentifier() else f'({stage})'} * " \
                f"{self._tile_bytes(port) // port.itemsize}"
            text.add(f"rows::fetch<{port.count}, {stride_of(port)}, {self.table.block}>({tile}, {port.base}, {first}, "
                     f"work.count, {self.table.tile});")
        text.add("rows::end_group();")

    def _rows_of_tile(self, text: IndentedText) -> None:
        """Write the loop of the row function over the rows of a tile."""
        table = self.table
        text.add(f"for (int row = {'group' if table.lanes > 1 else 'threadIdx.x'}; row < count; row += {table.groups}) "
                 "{")
        self._one_row(text, self._tile_places(), "first + row")
        text.add("}")

    def _tile_places(self) -> dict[str, str]:
        """Return the C++ places of a row's inputs and outputs within a tile."""
        table = self.table
        stage = f"turn % {table.stages}" if table.stages > 1 else ""
        places: dict[str, str] = {}
        for port in self.function.inputs:
            tile = f"{port.local}_tiles" + (f" + {stage} * {self._tile_bytes(port) // port.itemsize}" if stage else "")
            at = f"{tile} + row * {stride_of(port)}" if stride_of(port) > 1 else f"{tile} + row"
            places[port.local] = f"*({at})" if port.number else at
        for product, how in self._multiplied:
            places[product.name] = f"{product.name}_tile + row * {how.apart}"
        for staged in self.function.stages:
            places[staged.name] = f"{staged.name}_tile + row * {stride_of(staged)}"
        for port in self.ports:
            if port.output:
                tiled = port in self._stored and not port.number
                places[port.local] = f"{port.local}_tile + row * {stride_of(port)}" if tiled else \
                    at_row(port, "(first + row)" if not port.number else "first + row")
        return places

    def _one_row(self, text: IndentedText, places: dict[str, str], row: str) -> None:
        """Write the call of the row function on a row, and the stores of its results; one lane of a row stores a
        number.
        """
        lanes = self.table.lanes
        if self.folded:
            places |= self._declared_results(text, lanes)
        numbers = [port for port in self.ports if port.output and port.number and lanes > 1]
        for port in numbers:
            text.add(f"{port.c} {port.local};")
            places[port.local] = port.local
        text.add(self._call(places, lanes=True))
        for port in numbers:
            text.add(f"if (lane == 0) {port.base}[{row}] = {port.local};")
        self._take(text, lanes)

    # -- rows where they are ------------------------------------------------------------------------------------------

    def _direct(self, text: IndentedText) -> None:
        table = self.table
        if self.folded or (self.function.scratch and table.lanes > 1):
            text.add("extern __shared__ __align__(16) unsigned char memory[];")
        self._place_of_thread(text, 0)
        self._declare_folds(text)
        if self._flushes:
            text.add("int turn = 0;")
        text.add(f"for (long long row = {'group' if table.lanes > 1 else 'threadIdx.x'}; row < work.count; row += "
                 f"{table.groups}) {{")
        self._one_row(text, {port.local: at_row(port, "row") for port in self.ports}, "row")
        if self._flushes:
            text.add(f"if (++turn % {FLUSHED} == 0) {{")
            self._flush(text, table.lanes)
            text.add("}")
        text.add("}")
        self._store_results(text)


def function_of_row(function: RowFunction, lanes: int, folded: Sequence[AccumulatedField]) -> list[str]:
    """Return the C++ functions of a row: its stages, and itself."""
    slots = {one.port.local: slots_of(one.port.count, lanes) for one in folded}
    inputs = [f"const {port.c} {port.local}" if port.number else f"const {port.c}* __restrict__ {port.local}"
              for port in function.inputs]
    last = [declared for declared, _ in function.given]
    last += [f"const {port.c}* __restrict__ {port.local}" for port in function.flats]
    if lanes > 1:
        last += ["const int lane", "unsigned char* const scratch"]
    elif function.scratch:
        last += ["unsigned char* const scratch"]
    lines = []
    for stage in function.stages:
        product = next(one for one in function.products if one.row == stage.name)
        lines += _function(f"{function.name}_{stage.name}", [
            *inputs, f"{stage.c}* __restrict__ {stage.name}", *_given(_before(function, product)),
            *_given(function.stages[:function.stages.index(stage)]), *last], stage.lines)
    parameters = inputs
    for port in function.outputs:
        parameters.append(f"{port.c}& {port.local}" if port.number else
                          f"{port.c} (&{port.local})[{slots[port.local]}]" if port.local in slots else
                          f"{port.c}* __restrict__ {port.local}")
    parameters += [f"{factor.c}* __restrict__ {factor.name}" for factor in function.factors]
    return lines + _function(function.name, [*parameters, *_given(function.products), *_given(function.stages), *last],
                             function.lines)


def _given(left: Sequence[Product | ProductRow]) -> list[str]:
    return [f"const {one.c}* __restrict__ {one.name}" for one in left]


def _function(name: str, parameters: Sequence[str], lines: Sequence[str]) -> list[str]:
    return ["static __device__ __forceinline__ void", f"{name}({', '.join(parameters)})", "{", *lines, "}"]


def _before(function: RowFunction, product: Product) -> tuple[Product, ...]:
    """Return the products that a product's stage may read."""
    return function.products[:function.products.index(product)]


def matrix_type(product: Product) -> str:
    """Return the C++ type of a product's matrix."""
    return (f"rows::Matrix<{product.matrix_c}, {product.terms}, {product.width}, {product.base}, {product.down}, "
            f"{product.across}>")


def slots_of(width: int, lanes: int) -> int:
    return max(1, -(-width // lanes))


def unrolled(slots: int) -> tuple[str, ...]:
    """Return the line before a loop over a thread's numbers: with few of them it is written out, so that they are in
    registers.
    """
    return ("VISPARK_UNROLL",) if slots <= _WRITTEN_OUT else ()


def at_row(port: Port, row: str) -> str:
    """Return a row where it lies in memory."""
    if port.number:
        return f"{port.base}[{row}]"
    return f"{port.base} + {row} * {port.count}"


def _last_word(declared: str) -> str:
    return declared.rpartition(" ")[2]
