"""The frame of several time steps at once: each plane is read once, and goes through all steps before it is written.

A block of threads goes along z with a tile of cells that is wider, on each side, by the steps. Step t of a plane is
done as soon as step t - 1 of the plane above is: a thread keeps three planes of each step in registers, gives its
warp's other threads its cells along x, and the next warps its outer rows through shared memory. Near the tile's rim the
cells of later steps are wrong, and not written. Planes are on their way into shared memory while those before are
computed.

The steps may be one stencil's, or each another's. Cells beyond the grid keep their values where the boundary is fixed;
where it is periodic they are computed like any other, from ghosts as deep as all steps reach; where it is mirrored,
whoever reads one gets the cell that it repeats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from vispark.translate.codegen.scalar.target import by_schedule
from vispark.translate.stencils.frame import (
    LOAD,
    REGION,
    STORE,
    WARP,
    WRAP,
    Carried,
    Cell,
    FieldRead,
    Offset,
    Rims,
    Tile,
    TimeSteps,
    carried,
    shifted,
)
from vispark.translate.stencils.time_tiled_host import host_steps

#: The C++ types that threads can give each other, with 16 bytes for a thread.
_SHUFFLED = ("float", "double", "int", "unsigned", "long long", "unsigned long long")
#: Planes of each step in registers, and buffers of outer rows in shared memory. The loop's body is written out for as
#: many turns as bring both back to where they were: so none is ever moved, and all places are known.
_PLANES = 3
#: For more the registers do not suffice.
_MOST_FIELDS = 2

_HELPERS = """template <int n, class T> static __device__ __forceinline__ void vp_move(T* to, const T* from)
{
    vp_lanes<T, n> lanes;
    #pragma unroll
    for (int l = 0; l < n; ++l) lanes.item[l] = from[l];
    *(vp_lanes<T, n>*)to = lanes;
}

// One of two numbers by a mask of all bits or none.
template <class T> static __device__ __forceinline__ T vp_pick(unsigned mask, T yes, T no) { return mask ? yes : no; }
template <> __device__ __forceinline__ float vp_pick<float>(unsigned mask, float yes, float no)
{
    return __uint_as_float((__float_as_uint(yes) & mask) | (__float_as_uint(no) & ~mask));
}
"""

def why_apart(cells: Sequence[Cell], rims: Mapping[str, Rims]) -> str:
    """Return the reason why some cells' functions cannot share one pass; empty if they can. A field that is not among
    the ``rims`` counts as periodic.
    """
    reads = [read for cell in cells for read in cell.reads]
    both = [each for cell in cells for each in cell.both]
    types, fields = {each.c for each in both}, {each.field for each in both}
    if any(cell.dims != len("zyx") for cell in cells):
        return "the grid has fewer than 3 axes"
    if any(not cell.reads for cell in cells):
        return "one of them reads nothing"
    if len(fields) > _MOST_FIELDS:
        return "it goes through more than two fields"
    if len(types) > 1 or not types <= set(_SHUFFLED):
        return "its fields are not of one type of 4 or 8 bytes"
    if any(abs(step) > 1 for read in reads for offset in read.offsets for step in offset):
        return "it reads further than the next cells"
    if any(offset[0] and (offset[1] or offset[2]) for read in reads for offset in read.offsets):
        return "it reads diagonally across planes"
    if not all(cell.total for cell in cells):
        return "it may go on for long, or end with a fault"
    around = [rims[field] for field in fields if field in rims]
    if any(len({each[side] == "periodic" for each in around for side in (low, low + 1)}) > 1 for low in (0, 2, 4)):
        return "some of its fields are periodic along an axis, and some are not"
    return ""


def shared_bytes(fields: Sequence[Carried], how: TimeSteps) -> int:
    """Return the bytes of shared memory that several steps of some fields need: outer rows, and planes on their way."""
    tile = Tile.of(fields[0].itemsize, how)
    edges = how.buffers * how.steps * how.warps * min(how.rows, 2) * tile.width
    planes = _PLANES * tile.height * tile.width * sum(each.loaded for each in fields)
    return (edges * len(fields) + planes) * fields[0].itemsize


def fused(cells: Sequence[Cell], text: str, kernel: str, how: TimeSteps) -> str:
    """Return the source of a kernel that does several steps.

    Parameters
    ----------
    cells : sequence of Cell
        The function of each step.
    text : str
        Their C++.
    """
    return _Fuser(cells, text, kernel, how).source()


class _Fuser:
    """Writer of a kernel of several time steps."""

    def __init__(self, cells: Sequence[Cell], text: str, kernel: str, how: TimeSteps):
        self.cells, self.text, self.kernel, self.how = cells, text, kernel, how
        self.fields = carried(cells, dict(how.rims))
        self.loaded = [each for each in self.fields if each.loaded]
        self.stored = [each for each in self.fields if each.out]
        self.by_field = {each.field: each for each in self.fields}
        self.outer = min(how.rows, 2)
        self.type, size = self.fields[0].c, self.fields[0].itemsize
        self.tile = Tile.of(size, how)
        self.edges = how.buffers * how.steps * how.warps * self.outer * self.tile.width
        self.plane = self.tile.height * self.tile.width
        # What of each cell's parameters is the kernel's: once, where all steps are one stencil's.
        alike = all(cell is cells[0] for cell in cells)
        self.given = [each for cell in (cells[:1] if alike else cells) for each in cell.given]
        self.lines: list[str] = []

    def add(self, depth: int, *lines: str) -> None:
        """Add lines."""
        self.lines.extend("    " * depth + line for line in lines)

    def source(self) -> str:
        """Return the whole source."""
        ports = [f"const {self.type}* __restrict__ {each.name}_in" for each in self.loaded]
        ports += [f"{self.type}* __restrict__ {each.out}" for each in self.stored]
        captured = [declared for declared, _ in self.given]
        self._steps()
        steps, self.lines = self.lines, []
        wrap = [WRAP] if any(cell.coordinates for cell in self.cells) else []
        before = [REGION, LOAD, STORE, _HELPERS, *wrap, self.text]
        self._choose()
        return "\n".join([
            *before,
            "// A tile's steps; whether cells beyond the grid may be in it: rows and planes, ends of rows.",
            "template <bool rim_rows, bool rim_ends> static __device__ __forceinline__ void",
            f"{self.kernel}_tile({', '.join(['unsigned char* shared', *ports, 'const vp_region& region', *captured])})",
            "{", *steps, "}", "",
            f'extern "C" __global__ void __launch_bounds__({self.how.warps * WARP}, 1)',
            f"{self.kernel}({', '.join([*ports, 'const vp_region region', *captured])})", "{",
            *by_schedule(host_steps(self.cells, self.fields, self.how, self.tile), self.lines), "}"]) + "\n"

    def _choose(self) -> None:
        """Write the choice between tiles within the grid, which do not look for its boundary, and others."""
        tile, steps = self.tile, self.how.steps
        self.add(1, "extern __shared__ __align__(128) unsigned char shared[];",
                 f"const long long x = region.origin[2] + (region.low[2] & ~{tile.lanes - 1}) + (long long)blockIdx.x"
                 f" * {tile.inner[0]};",
                 f"const long long row = region.origin[1] + region.low[1] + (long long)blockIdx.y * {tile.inner[1]};",
                 "const long long planes = region.high[0] - region.low[0], start = region.origin[0] + region.low[0];",
                 "const long long first = start + planes * blockIdx.z / gridDim.z;",
                 "const long long last = start + planes * (blockIdx.z + 1) / gridDim.z;")
        tests = [("first", "last", steps), ("row", f"row + {tile.inner[1]}", steps),
                 ("x", f"x + {tile.inner[0]}", tile.side)]
        within = [f"{low} >= {side} && {high} + {side} <= region.shape[{axis}]" if not self.how.periodic(axis)
                  else "true" for axis, (low, high, side) in enumerate(tests)]
        names = ["shared", *(f"{each.name}_in" for each in self.loaded), *(each.out for each in self.stored), "region",
                 *(name for _, name in self.given)]
        self.add(1, f"const bool rows_within = {within[0]} && {within[1]};", f"const bool ends_within = {within[2]};")
        for test, rows, ends in (("if (rows_within && ends_within)", "false", "false"),
                                 ("else if (rows_within)", "false", "true"), ("else", "true", "true")):
            self.add(1, test, f"    {self.kernel}_tile<{rows}, {ends}>({', '.join(names)});")

    # -- before the first plane ---------------------------------------------------------------------------------------

    def _steps(self) -> None:
        self._declare_place()
        self._registers()
        self._prologue()
        self.add(1, f"for (int s = first - {self.how.steps}; s < last + {self.how.steps};) {{")
        for turn in range(math.lcm(_PLANES, self.how.buffers)):
            self._turn(turn)
        self.add(1, "}")

    def _declare_place(self) -> None:
        tile, steps, rows = self.tile, self.how.steps, self.how.rows
        self.add(1, "const int lane = threadIdx.x, warp = threadIdx.y;",
                 f"const int x = (region.low[2] & ~{tile.lanes - 1}) + (int)blockIdx.x * {tile.inner[0]} - {tile.side}"
                 f" + lane * {tile.lanes};",
                 f"const int row = region.low[1] + (int)blockIdx.y * {tile.inner[1]} - {steps} + warp * {rows};",
                 "const long long planes = region.high[0] - region.low[0];",
                 "const int first = region.low[0] + (int)(planes * blockIdx.z / gridDim.z);",
                 "const int last = region.low[0] + (int)(planes * (blockIdx.z + 1) / gridDim.z);",
                 f"const int at_x = min(x, (region.high[2] + {steps - 1}) & ~{tile.lanes - 1});")
        for row in range(rows):
            self.add(1, f"const long long row_{row} = (long long)min({shifted('row', row)}, region.high[1] - 1 + "
                        f"{steps}) * region.pitch + at_x;")
        for field in self.loaded:
            self.add(1, f"const {self.type}* {field.name}_from = {field.name}_in + (first - {steps}) * region.plane;")
        for field in self.stored:
            self.add(1, f"{self.type}* {field.out}_to = {field.out} + (first - {2 * steps}) * region.plane + "
                        "(long long)row * region.pitch + x;")

    def _registers(self) -> None:
        tile, steps, rows = self.tile, self.how.steps, self.how.rows
        margin = tile.side // tile.lanes
        self.add(1, f"const bool whole = x >= region.low[2] && x + {tile.lanes} <= region.high[2];",
                 f"const bool inside = lane >= {margin} && lane < {WARP - margin} && x < region.high[2] && "
                 f"x + {tile.lanes} > region.low[2];", "unsigned written = 0;", "#pragma unroll",
                 f"for (int r = 0; r < {rows}; ++r) {{", f"    const int place = warp * {rows} + r;",
                 f"    written |= (unsigned)(inside && place >= {steps} && place < {tile.height - steps} && row + r < "
                 "region.high[1]) << r;", "}")
        self.add(1, f"unsigned alive_x[{tile.lanes}], alive_row[{rows}];",
                 *self._alive("x", "l", tile.lanes, 2), *self._alive("row", "r", rows, 1))
        if not self.how.periodic(0):
            self.add(1, "const int bottom = (int)max(-region.origin[0], -2147483647LL);",
                     "const int top = (int)min(region.shape[0] - region.origin[0], 2147483647LL);")
        for axis, name, at in ((1, "rows", "row"), (2, "ends", "x")):
            if any(any(self.how.mirrored(each.field, axis)) for each in self.fields):
                # Places among a thread's cells, counted from the one before them.
                self.add(1, f"const int {name}_before = (int)max(-region.origin[{axis}] - {at}, -2147483647LL);",
                         f"const int {name}_behind = (int)min(region.shape[{axis}] - region.origin[{axis}] - {at} + 1, "
                         "2147483647LL);")
        edge = f"[{self.how.warps}][{self.outer}][{tile.width}]"
        self.add(1, f"typedef {self.type} (*Edges){edge};",
                 f"typedef {self.type} (*Planes)[{self.how.warps}][{rows}][{tile.width}];",
                 "const Edges edges = (Edges)shared;")
        for field in self.fields:
            if field.loaded:
                place = self.edges * len(self.fields) + self.loaded.index(field) * _PLANES * self.plane
                self.add(1, f"const Planes {field.name}_ring = (Planes)(({self.type}*)shared + {place});")
            if any(field.live):
                self.add(1, f"{self.type} {field.name}[{steps}][{_PLANES}][{rows}][{tile.lanes}] = {{}};")
        self.add(1, f"const int warp_above = max(warp - 1, 0), warp_below = min(warp + 1, {self.how.warps - 1});")

    def _alive(self, name: str, index: str, count: int, axis: int) -> list[str]:
        """Return the masks of the cells within the grid along an axis."""
        test = f"region.origin[{axis}] + {name} + {index} >= 0 && region.origin[{axis}] + {name} + {index} < " \
               f"region.shape[{axis}] ? ~0u : 0u" if self.how.kept(axis) else "~0u"
        return ["#pragma unroll", f"for (int {index} = 0; {index} < {count}; ++{index})",
                f"    alive_{name}[{index}] = {test};"]

    def _prologue(self) -> None:
        steps = self.how.steps
        for turn in range(_PLANES):
            self.add(1, f"if (first - {steps} + {turn} < last + {steps}) {{", *self._load(turn), "}",
                     "vispark::end_group();")

    def _load(self, turn: int) -> list[str]:
        """Return the next plane, on its way into shared memory."""
        lines = []
        for field in self.loaded:
            slot = f"{field.name}_ring[{turn % _PLANES}][warp]"
            lines += [f"    vispark::copy_ahead<16>(&{slot}[{row}][lane * {self.tile.lanes}], "
                      f"{field.name}_from + row_{row});"
                      for row in range(self.how.rows)]
            lines.append(f"    {field.name}_from += region.plane;")
        return lines

    # -- every plane --------------------------------------------------------------------------------------------------

    def _turn(self, turn: int) -> None:
        how, lanes = self.how, self.tile.lanes
        newest = (turn + 2) % _PLANES
        self.add(2, f"vispark::wait_for_groups<{_PLANES - 1}>();")
        for field in self.loaded:
            slot = f"{field.name}_ring[{turn % _PLANES}][warp]"
            self.add(2, *(f"vp_load<{lanes}>({field.name}[0][{newest}][{row}], &{slot}[{row}][lane * {lanes}]);"
                          for row in range(how.rows)))
        self.add(2, f"if (s + {_PLANES} < last + {how.steps}) {{", *self._load(turn), "}", "vispark::end_group();")
        self._give_edges(0, turn)
        for level in range(how.steps):
            self._level(level, turn)
        self.add(2, "__syncthreads();", *(f"{each.out}_to += region.plane;" for each in self.stored),
                 f"if (++s >= last + {how.steps}) break;")

    def _edge(self, turn: int, field: Carried, level: int, warp: str, row: int) -> str:
        """Return the C++ address of a warp's outer row in the turn's buffer."""
        number = (turn % self.how.buffers * len(self.fields) + self.fields.index(field)) * self.how.steps + level
        return f"&edges[{number}][{warp}][{row}][lane * {self.tile.lanes}]"

    def _give_edges(self, level: int, turn: int) -> None:
        """Write the stores of a warp's outer rows of a step's newest plane, for the warps above and below."""
        for read in self.cells[level].reads:
            if read.reach(1) != (0, 0):
                field = self.by_field[read.field]
                for row in range(self.outer):
                    own = 0 if row == 0 else self.how.rows - 1
                    self.add(2, f"vp_move<{self.tile.lanes}>({self._edge(turn, field, level, 'warp', row)}, "
                                f"{field.name}[{level}][{(turn + 2) % _PLANES}][{own}]);")

    def _level(self, level: int, turn: int) -> None:
        """Write one step for the middle plane of the step before."""
        how, rows, lanes, cell = self.how, self.how.rows, self.tile.lanes, self.cells[level]
        oldest, middle, newest = turn % _PLANES, (turn + 1) % _PLANES, (turn + 2) % _PLANES
        last = level + 1 == how.steps
        self.add(2, "{")
        for read in cell.reads:
            self.add(3, f"{self.type} {self.by_field[read.field].name}_around[{rows + 2}][{lanes + 2}];")
            self._gather(read, level, turn)
        if last:
            self.add(3, *(f"{self.type} {each.out}_computed[{rows}][{lanes}];" for each in self.stored))

        def target(field: Carried) -> str:
            return f"{field.out}_computed" if last else f"{field.name}[{level + 1}][{newest}]"

        def neighbour(read: FieldRead, offset: Offset) -> str:
            name, at = self.by_field[read.field].name, f"s - {level + 1}"
            if offset[0]:
                cell = f"{name}[{level}][{newest if offset[0] > 0 else oldest}][r][l]"
                if how.mirrored(read.field, 0)[offset[0] > 0]:
                    side = f"{at} == top - 1" if offset[0] > 0 else f"{at} == bottom"
                    return f"(rim_rows && {side} ? {name}[{level}][{middle}][r][l] : {cell})"
                return cell
            return f"{name}_around[r + {offset[1] + 1}][l + {offset[2] + 1}]"

        def place(axis: int) -> str:
            index = f"region.origin[{axis}] + {('x + l', 'row + r', f's - {level + 1}')[2 - axis]}"
            return f"vp_wrapped({index}, region.shape[{axis}])" if how.periodic(axis) else index

        if cell.divides:
            self.add(3, "bool sure = true;")
        for exact in (False, True) if cell.divides else (False,):
            if exact:
                self.add(3, "if (!sure)")
            self.add(3, "#pragma unroll", f"for (int r = 0; r < {rows}; ++r)")
            self.add(4, "#pragma unroll", f"for (int l = 0; l < {lanes}; ++l)",
                     "    " + cell.call(lambda write: f"{target(self.by_field[write.field])}[r][l]", neighbour, place,
                                        exact=exact))
        written = [self.by_field[write.field] for write in cell.writes]
        for port in self.fields:
            if port not in written and (port.out if last else port.live[level + 1]):
                self.add(3, "#pragma unroll", f"for (int r = 0; r < {rows}; ++r)",
                         f"    for (int l = 0; l < {lanes}; ++l) {target(port)}[r][l] = "
                         f"{port.name}[{level}][{middle}][r][l];")
        self._keep(level, middle, [(target(each), each) for each in written if each.live[level]])
        if last:
            self._store()
        else:
            self._give_edges(level + 1, turn)
        self.add(2, "}")

    def _gather(self, read: FieldRead, level: int, turn: int) -> None:
        """Write the loads of a plane's rows with their neighbours along x, and of the outer rows that the next warps
        stored a turn ago.
        """
        middle, field = (turn + 1) % _PLANES, self.by_field[read.field]
        name, rows, lanes = field.name, self.how.rows, self.tile.lanes
        own = f"{name}[{level}][{middle}][r]"
        if read.reach(1) != (0, 0):
            self.add(3, f"vp_load<{lanes}>({name}_around[0] + 1, "
                        f"{self._edge(turn + self.how.buffers - 1, field, level, 'warp_above', self.outer - 1)});",
                     f"vp_load<{lanes}>({name}_around[{rows + 1}] + 1, "
                     f"{self._edge(turn + self.how.buffers - 1, field, level, 'warp_below', 0)});")
        self.add(3, "#pragma unroll", f"for (int r = 0; r < {rows}; ++r) {{",
                 f"    for (int l = 0; l < {lanes}; ++l) {name}_around[r + 1][l + 1] = {own}[l];")
        if read.reach(2) != (0, 0):
            self.add(4, f"{name}_around[r + 1][0] = __shfl_up_sync(0xffffffffu, {own}[{lanes - 1}], 1);",
                     f"{name}_around[r + 1][{lanes + 1}] = __shfl_down_sync(0xffffffffu, {own}[0], 1);")
        self.add(3, "}")
        diagonal = any(offset[1] and offset[2] for offset in read.offsets)
        if diagonal:
            # The next warps' rows have neighbours along x, too.
            for row in (0, rows + 1):
                around = f"{name}_around[{row}]"
                self.add(3, f"{around}[0] = __shfl_up_sync(0xffffffffu, {around}[{lanes}], 1);",
                         f"{around}[{lanes + 1}] = __shfl_down_sync(0xffffffffu, {around}[1], 1);")
        self._mirror(read, name, diagonal)

    def _mirror(self, read: FieldRead, name: str, diagonal: bool) -> None:
        """Write mirrored values beyond a side, which are those of the cells before it: rows first, then their ends."""
        rows, lanes = self.how.rows, self.tile.lanes
        start, stop = (0, lanes + 2) if diagonal else (1, lanes + 1)
        for above, is_mirrored in enumerate(self.how.mirrored(read.field, 1)):
            if is_mirrored and read.reach(1)[above]:
                place, step = ("rows_behind", -1) if above else ("rows_before", 1)
                self.add(3, "if (rim_rows) {", "    #pragma unroll",
                         f"    for (int r = {above}; r < {rows + 1 + above}; ++r)",
                         f"        if (r == {place}) for (int l = {start}; l < {stop}; ++l) {name}_around[r][l] = "
                         f"{name}_around[{shifted('r', step)}][l];", "}")
        start, stop = (0, rows + 2) if diagonal else (1, rows + 1)
        for above, is_mirrored in enumerate(self.how.mirrored(read.field, 2)):
            if is_mirrored and read.reach(2)[above]:
                place, step = ("ends_behind", -1) if above else ("ends_before", 1)
                self.add(3, "if (rim_ends) {", "    #pragma unroll",
                         f"    for (int l = {above}; l < {lanes + 1 + above}; ++l)",
                         f"        if (l == {place}) for (int r = {start}; r < {stop}; ++r) {name}_around[r][l] = "
                         f"{name}_around[r][{shifted('l', step)}];", "}")

    def _keep(self, level: int, middle: int, results: list[tuple[str, Carried]]) -> None:
        """Write the code by which cells beyond the grid keep their values."""
        if not results or not any(map(self.how.kept, range(3))):
            return
        plane = f"s - {level + 1}"
        deep = f"{plane} >= bottom && {plane} < top ? ~0u : 0u" if self.how.kept(0) else "~0u"
        self.add(3, "if (rim_ends) {", f"    const unsigned deep = {deep};", "    #pragma unroll",
                 f"    for (int r = 0; r < {self.how.rows}; ++r)", "        #pragma unroll",
                 f"        for (int l = 0; l < {self.tile.lanes}; ++l) {{",
                 "            const unsigned mask = rim_rows ? deep & alive_row[r] & alive_x[l] : alive_x[l];",
                 *(f"            {name}[r][l] = vp_pick(mask, {name}[r][l], {each.name}[{level}][{middle}][r][l]);"
                   for name, each in results), "        }", "}")

    def _store(self) -> None:
        lanes = self.tile.lanes
        self.add(3, f"if (written && s - {self.how.steps} >= first)", "    #pragma unroll",
                 f"    for (int r = 0; r < {self.how.rows}; ++r)", "        if (written >> r & 1) {",
                 "            if (whole) {",
                 *(f"                vp_store<{lanes}>({each.out}_to + r * region.pitch, {each.out}_computed[r]);"
                   for each in self.stored),
                 "            } else {", f"                for (int l = 0; l < {lanes}; ++l)",
                 "                    if (x + l >= region.low[2] && x + l < region.high[2]) {",
                 *(f"                        {each.out}_to[r * region.pitch + l] = {each.out}_computed[r][l];"
                   for each in self.stored),
                 "                    }", "            }", "        }")
