"""The frame of several time steps at once: each plane is read once, and goes through all steps before it is written.

A block of threads goes along z with a tile of cells that is wider, on each side, by the steps. Step t of a plane is
done as soon as step t - 1 of the plane above is: a thread keeps three planes of each step in registers, gives its
warp's other threads its cells along x, and the next warps its outer rows through shared memory. Near the tile's rim the
cells of later steps are wrong, and not written. Planes are on their way into shared memory while those before are
computed.

Cells beyond the grid keep their values where the boundary is fixed; where it is periodic they are computed like any
other, from ghosts as deep as all steps reach.
"""

from __future__ import annotations

import math

from vispark.translate.stencil_frame import (
    LOAD,
    ON_HOST,
    REGION,
    STORE,
    WARP,
    WRAP,
    Cell,
    Offset,
    Read,
    Steps,
    Tile,
    Write,
    shifted,
)
from vispark.translate.stencil_steps_host import host_steps

#: The C++ types that threads can give each other, with 16 bytes for a thread.
_SHUFFLED = ("float", "double", "int", "unsigned", "long long", "unsigned long long")
#: Planes of each step in registers, and buffers of outer rows in shared memory. The loop's body is written out for as
#: many turns as bring both back to where they were: so none is ever moved, and all places are known.
_PLANES = 3
#: For more the registers do not suffice.
_MOST_FIELDS = 2

_HELPERS = """#ifndef __CUDA_ON_HOST__
static __device__ __forceinline__ void vp_copy(void* to, const void* from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
}
static __device__ __forceinline__ void vp_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int n> static __device__ __forceinline__ void vp_wait()
{
    asm volatile("cp.async.wait_group %0;" :: "n"(n) : "memory");
}
#else
static void vp_copy(void* to, const void* from) { memcpy(to, from, 16); }
static void vp_commit() {}
template <int n> static void vp_wait() {}
#endif

template <int n, class T> static __device__ __forceinline__ void vp_move(T* to, const T* from)
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

def why_apart(cell: Cell) -> str:
    """Why a stencil's steps cannot be done at once; empty if they can."""
    fields, written = {read.field for read in cell.reads}, {write.field for write in cell.writes}
    types = {read.c for read in cell.reads} | {write.c for write in cell.writes}
    if cell.dims != len("zyx"):
        return "the grid has fewer than 3 axes"
    if fields != written:
        return "it does not write just the fields that it reads"
    if len(fields) > _MOST_FIELDS:
        return "it goes through more than two fields"
    if len(types) > 1 or not types <= set(_SHUFFLED):
        return "its fields are not of one type of 4 or 8 bytes"
    if any(abs(step) > 1 for read in cell.reads for offset in read.offsets for step in offset):
        return "it reads further than the next cells"
    if any(offset[0] and (offset[1] or offset[2]) for read in cell.reads for offset in read.offsets):
        return "it reads diagonally across planes"
    return "" if cell.total else "it may go on for long, or end with a fault"


def fused(cell: Cell, kernel: str, how: Steps) -> tuple[str, int]:
    """The source of a kernel that does several steps, and the bytes of shared memory that it needs."""
    writer = _Fuser(cell, kernel, how)
    return writer.source(), writer.shared


class _Fuser:
    """Writes the kernel."""

    def __init__(self, cell: Cell, kernel: str, how: Steps):
        self.cell, self.kernel, self.how, self.tile = cell, kernel, how, Tile.of(cell, how)
        self.outer = min(how.rows, 2)
        self.type = cell.reads[0].c
        self.edges = how.buffers * how.steps * how.warps * self.outer * self.tile.width
        self.plane = self.tile.height * self.tile.width
        self.shared = (self.edges + _PLANES * self.plane) * len(cell.reads) * cell.reads[0].itemsize
        self.results = {write.field: write for write in cell.writes}
        self.lines: list[str] = []

    def add(self, depth: int, *lines: str) -> None:
        """Add lines."""
        self.lines.extend("    " * depth + line for line in lines)

    def source(self) -> str:
        """The whole source."""
        head = self.cell.signature(self.kernel, f"{self.how.warps * WARP}, 1")
        ports = ", ".join([f"const {self.type}* __restrict__ {read.name}_in" for read in self.cell.reads]
                          + [f"{self.type}* __restrict__ {write.name}" for write in self.cell.writes])
        given = "".join(f", {declared}" for declared, _ in self.cell.given)
        self._steps()
        steps, self.lines = self.lines, []
        wrap = [WRAP] if self.cell.coordinates else []
        before = [REGION, LOAD, STORE, _HELPERS, *wrap, self.cell.text]
        self._choose()
        return "\n".join([
            *before,
            "// Cells beyond the grid keep their values. Which may be in the tile: rows and planes, ends of rows.",
            "template <bool kept_rows, bool kept_ends> static __device__ __forceinline__ void",
            f"{self.kernel}_tile(unsigned char* shared, {ports}, const vp_region& region{given})", "{", *steps, "}",
            "", *head, "{", ON_HOST, *host_steps(self.cell, self.how, self.tile), "#else", *self.lines,
            "#endif", "}"]) + "\n"

    def _choose(self) -> None:
        """Tiles within the grid need not look for its boundary."""
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
        within = [f"{low} >= {side} && {high} + {side} <= region.shape[{axis}]" if self.how.kept[axis] else "true"
                  for axis, (low, high, side) in enumerate(tests)]
        names = ["shared", *(f"{read.name}_in" for read in self.cell.reads),
                 *(write.name for write in self.cell.writes), "region", *(name for _, name in self.cell.given)]
        self.add(1, f"const bool rows_within = {within[0]} && {within[1]};", f"const bool ends_within = {within[2]};")
        for test, rows, ends in (("if (rows_within && ends_within)", "false", "false"),
                                 ("else if (rows_within)", "false", "true"), ("else", "true", "true")):
            self.add(1, test, f"    {self.kernel}_tile<{rows}, {ends}>({', '.join(names)});")

    # -- before the first plane ---------------------------------------------------------------------------------------

    def _steps(self) -> None:
        self._where()
        self._registers()
        self._prologue()
        self.add(1, f"for (int s = first - {self.how.steps}; s < last + {self.how.steps};) {{")
        for turn in range(math.lcm(_PLANES, self.how.buffers)):
            self._turn(turn)
        self.add(1, "}")

    def _where(self) -> None:
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
        for read in self.cell.reads:
            self.add(1, f"const {self.type}* {read.name}_from = {read.name}_in + (first - {steps}) * region.plane;")
        for write in self.cell.writes:
            self.add(1, f"{self.type}* {write.name}_to = {write.name} + (first - {2 * steps}) * region.plane + "
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
        if self.how.kept[0]:
            self.add(1, "const int bottom = (int)max(-region.origin[0], -2147483647LL);",
                     "const int top = (int)min(region.shape[0] - region.origin[0], 2147483647LL);")
        edge = f"[{self.how.warps}][{self.outer}][{tile.width}]"
        self.add(1, f"typedef {self.type} (*Edges){edge};",
                 f"typedef {self.type} (*Planes)[{self.how.warps}][{rows}][{tile.width}];",
                 "const Edges edges = (Edges)shared;")
        for number, read in enumerate(self.cell.reads):
            self.add(1, f"const Planes {read.name}_ring = (Planes)(({self.type}*)shared + "
                        f"{self.edges * len(self.cell.reads) + number * _PLANES * self.plane});",
                     f"{self.type} {read.name}[{steps}][{_PLANES}][{rows}][{tile.lanes}] = {{}};")
        self.add(1, f"const int warp_above = max(warp - 1, 0), warp_below = min(warp + 1, {self.how.warps - 1});")

    def _alive(self, name: str, index: str, count: int, axis: int) -> list[str]:
        """The masks of the cells within the grid along an axis."""
        test = f"region.origin[{axis}] + {name} + {index} >= 0 && region.origin[{axis}] + {name} + {index} < " \
               f"region.shape[{axis}] ? ~0u : 0u" if self.how.kept[axis] else "~0u"
        return ["#pragma unroll", f"for (int {index} = 0; {index} < {count}; ++{index})",
                f"    alive_{name}[{index}] = {test};"]

    def _prologue(self) -> None:
        steps = self.how.steps
        for turn in range(_PLANES):
            self.add(1, f"if (first - {steps} + {turn} < last + {steps}) {{", *self._bring(turn), "}", "vp_commit();")

    def _bring(self, turn: int) -> list[str]:
        """The next plane, on its way into shared memory."""
        found = []
        for read in self.cell.reads:
            slot = f"{read.name}_ring[{turn % _PLANES}][warp]"
            found += [f"    vp_copy(&{slot}[{row}][lane * {self.tile.lanes}], {read.name}_from + row_{row});"
                      for row in range(self.how.rows)]
            found.append(f"    {read.name}_from += region.plane;")
        return found

    # -- every plane --------------------------------------------------------------------------------------------------

    def _turn(self, turn: int) -> None:
        how, lanes = self.how, self.tile.lanes
        newest = (turn + 2) % _PLANES
        self.add(2, f"vp_wait<{_PLANES - 1}>();")
        for read in self.cell.reads:
            slot = f"{read.name}_ring[{turn % _PLANES}][warp]"
            self.add(2, *(f"vp_load<{lanes}>({read.name}[0][{newest}][{row}], &{slot}[{row}][lane * {lanes}]);"
                          for row in range(how.rows)))
        self.add(2, f"if (s + {_PLANES} < last + {how.steps}) {{", *self._bring(turn), "}", "vp_commit();")
        self._give_edges(0, turn)
        for level in range(how.steps):
            self._level(level, turn)
        self.add(2, "__syncthreads();", *(f"{write.name}_to += region.plane;" for write in self.cell.writes),
                 f"if (++s >= last + {how.steps}) break;")

    def _edge(self, turn: int, read: Read, level: int, warp: str, row: int) -> str:
        """Where a warp's outer row is in the turn's buffer."""
        number = (turn % self.how.buffers * len(self.cell.reads) + self.cell.reads.index(read)) * self.how.steps + level
        return f"&edges[{number}][{warp}][{row}][lane * {self.tile.lanes}]"

    def _give_edges(self, level: int, turn: int) -> None:
        """A warp's outer rows of a step's newest plane, for the warps above and below."""
        for read in self.cell.reads:
            if read.reach(1) != (0, 0):
                for row in range(self.outer):
                    own = 0 if row == 0 else self.how.rows - 1
                    self.add(2, f"vp_move<{self.tile.lanes}>({self._edge(turn, read, level, 'warp', row)}, "
                                f"{read.name}[{level}][{(turn + 2) % _PLANES}][{own}]);")

    def _level(self, level: int, turn: int) -> None:
        """One step of the plane before the newest of the step before."""
        how, rows, lanes = self.how, self.how.rows, self.tile.lanes
        oldest, middle, newest = turn % _PLANES, (turn + 1) % _PLANES, (turn + 2) % _PLANES
        last = level + 1 == how.steps
        self.add(2, "{")
        for read in self.cell.reads:
            self.add(3, f"{self.type} {read.name}_around[{rows + 2}][{lanes + 2}];")
            self._gather(read, level, turn)
        if last:
            self.add(3, *(f"{self.type} {write.name}_made[{rows}][{lanes}];" for write in self.cell.writes))
        by_field = {read.field: read for read in self.cell.reads}

        def made(write: Write) -> str:
            return f"{write.name}_made" if last else f"{by_field[write.field].name}[{level + 1}][{newest}]"

        def neighbour(read: Read, offset: Offset) -> str:
            if offset[0]:
                return f"{read.name}[{level}][{newest if offset[0] > 0 else oldest}][r][l]"
            return f"{read.name}_around[r + {offset[1] + 1}][l + {offset[2] + 1}]"

        def place(axis: int) -> str:
            index = f"region.origin[{axis}] + {('x + l', 'row + r', f's - {level + 1}')[2 - axis]}"
            return index if how.kept[axis] else f"vp_wrapped({index}, region.shape[{axis}])"

        self.add(3, "#pragma unroll", f"for (int r = 0; r < {rows}; ++r)")
        self.add(4, "#pragma unroll", f"for (int l = 0; l < {lanes}; ++l)",
                 "    " + self.cell.call(lambda write: f"{made(write)}[r][l]", neighbour, place))
        self._keep(level, middle, [(made(write), by_field[write.field]) for write in self.cell.writes])
        if last:
            self._store()
        else:
            self._give_edges(level + 1, turn)
        self.add(2, "}")

    def _gather(self, read: Read, level: int, turn: int) -> None:
        """A plane's rows with their neighbours along x, and the rows of the next warps, which gave them a turn ago."""
        middle = (turn + 1) % _PLANES
        rows, lanes, own = self.how.rows, self.tile.lanes, f"{read.name}[{level}][{middle}][r]"
        if read.reach(1) != (0, 0):
            self.add(3, f"vp_load<{lanes}>({read.name}_around[0] + 1, "
                        f"{self._edge(turn + self.how.buffers - 1, read, level, 'warp_above', self.outer - 1)});",
                     f"vp_load<{lanes}>({read.name}_around[{rows + 1}] + 1, "
                     f"{self._edge(turn + self.how.buffers - 1, read, level, 'warp_below', 0)});")
        self.add(3, "#pragma unroll", f"for (int r = 0; r < {rows}; ++r) {{",
                 f"    for (int l = 0; l < {lanes}; ++l) {read.name}_around[r + 1][l + 1] = {own}[l];")
        if read.reach(2) != (0, 0):
            self.add(4, f"{read.name}_around[r + 1][0] = __shfl_up_sync(0xffffffffu, {own}[{lanes - 1}], 1);",
                     f"{read.name}_around[r + 1][{lanes + 1}] = __shfl_down_sync(0xffffffffu, {own}[0], 1);")
        self.add(3, "}")
        if any(offset[1] and offset[2] for offset in read.offsets):
            # The next warps' rows have neighbours along x, too.
            for row in (0, rows + 1):
                around = f"{read.name}_around[{row}]"
                self.add(3, f"{around}[0] = __shfl_up_sync(0xffffffffu, {around}[{lanes}], 1);",
                         f"{around}[{lanes + 1}] = __shfl_down_sync(0xffffffffu, {around}[1], 1);")

    def _keep(self, level: int, middle: int, made: list[tuple[str, Read]]) -> None:
        """Cells beyond the grid keep their values."""
        if not any(self.how.kept):
            return
        plane = f"s - {level + 1}"
        deep = f"{plane} >= bottom && {plane} < top ? ~0u : 0u" if self.how.kept[0] else "~0u"
        self.add(3, "if (kept_ends) {", f"    const unsigned deep = {deep};", "    #pragma unroll",
                 f"    for (int r = 0; r < {self.how.rows}; ++r)", "        #pragma unroll",
                 f"        for (int l = 0; l < {self.tile.lanes}; ++l) {{",
                 "            const unsigned mask = kept_rows ? deep & alive_row[r] & alive_x[l] : alive_x[l];",
                 *(f"            {name}[r][l] = vp_pick(mask, {name}[r][l], {read.name}[{level}][{middle}][r][l]);"
                   for name, read in made), "        }", "}")

    def _store(self) -> None:
        lanes = self.tile.lanes
        self.add(3, f"if (written && s - {self.how.steps} >= first)", "    #pragma unroll",
                 f"    for (int r = 0; r < {self.how.rows}; ++r)", "        if (written >> r & 1) {",
                 "            if (whole) {",
                 *(f"                vp_store<{lanes}>({write.name}_to + r * region.pitch, {write.name}_made[r]);"
                   for write in self.cell.writes),
                 "            } else {", f"                for (int l = 0; l < {lanes}; ++l)",
                 "                    if (x + l >= region.low[2] && x + l < region.high[2]) {",
                 *(f"                        {write.name}_to[r * region.pitch + l] = {write.name}_made[r][l];"
                   for write in self.cell.writes),
                 "                    }", "            }", "        }")
