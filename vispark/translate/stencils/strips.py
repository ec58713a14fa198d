"""The frame of a chain of stencils on a grid of two axes: every row is read once, and goes through all of them.

A warp goes along y with a strip of cells, which is wider on either side than what it writes by as much as the chain
reaches. It keeps in registers the rows of each version that are read again, and gives its threads each other's cells
along x; warps share nothing, and wait for nothing but memory. Near the strip's rim the cells of later stencils are
wrong, and not written.

Cells beyond the grid are computed like any other where it is periodic, from ghosts as deep as the chain reaches; else
each version gets its own there, as an exchange would have given them. Strips within the grid have code of their own,
which does not look for its boundary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vispark.translate.codegen.scalar.target import by_schedule
from vispark.translate.stencils.chain import Chain, ChainStage, Sides, Version, X, Y
from vispark.translate.stencils.frame import LOAD, REGION, STORE, WARP, WRAP, FieldRead, Offset, shifted
from vispark.translate.stencils.strips_host import host_strips


@dataclass(frozen=True)
class Strips:
    """Tiling of a chain by strips: how threads share the work.

    Attributes
    ----------
    lanes : int
        A thread's neighbouring cells along x.
    warps : int
        Warps of a block, each with a strip of its own.
    chunk : int
        About how many rows a warp goes through.
    least : int
        The least blocks that a multiprocessor is to hold, which bounds the registers; 0 for no bound.
    """

    lanes: int
    warps: int
    chunk: int
    least: int = 0

    def side(self, chain: Chain) -> int:
        """Return cells of a strip on either side that are not written."""
        return -(-chain.side // self.lanes) * self.lanes

    def inner(self, chain: Chain) -> int:
        """Return cells of a strip that are written."""
        return WARP * self.lanes - 2 * self.side(chain)


def strips(chain: Chain, text: str, kernel: str, how: Strips, sides: Mapping[str, Sides]) -> str:
    """Return the source of a kernel that does a chain; ``text`` is the C++ of its cells' functions."""
    return _StripWriter(chain, how, sides).source(text, kernel)


class _StripWriter:
    """Writer of the kernel of a chain in strips."""

    def __init__(self, chain: Chain, how: Strips, sides: Mapping[str, Sides]):
        self.chain, self.how, self.sides = chain, how, sides
        self.side, self.inner = how.side(chain), how.inner(chain)
        fields = {each.field for each in chain.versions}
        self.periodic = {axis: all(sides[name][2 * axis - 2] == "periodic" for name in fields) for axis in (Y, X)}
        self.settled = [each for each in chain.versions if each.stage >= 0 and each.continued
                        and not all(self.periodic.values())]
        self.lines: list[str] = []

    def add(self, depth: int, *lines: str) -> None:
        """Add lines."""
        self.lines.extend("    " * depth + line for line in lines)

    def source(self, text: str, kernel: str) -> str:
        """Return the whole source."""
        chain = self.chain
        ports = [f"const {each.c}* __restrict__ {each.name}_in" for each in chain.given]
        ports += [f"{each.c}* __restrict__ {each.name}_out" for each in chain.stored]
        captured = [each for stage in chain.stages for each in stage.cell.given]
        names = [port.split()[-1] for port in ports] + ["region", *(name for _, name in captured)]
        bounds = f"{self.how.warps * WARP}" + (f", {self.how.least}" if self.how.least else "")
        self._declare_place()
        self._registers()
        self._loop()
        body, self.lines = self.lines, []
        self._choose(f"{kernel}_strip", ", ".join(names))
        wrap = [WRAP] if any(stage.cell.coordinates for stage in chain.stages) else []
        return "\n".join([
            REGION, LOAD, STORE, *wrap, text,
            "// A warp's strip; whether cells beyond the grid may be in it.",
            "template <bool rims> static __device__ __forceinline__ void",
            f"{kernel}_strip({', '.join([*ports, 'const vp_region& region', *(each for each, _ in captured)])})",
            "{", *body, "}", "", f'extern "C" __global__ void __launch_bounds__({bounds})',
            f"{kernel}({', '.join([*ports, 'const vp_region region', *(each for each, _ in captured)])})", "{",
            *by_schedule(host_strips(chain, self.side, self.how.lanes, self.sides, self.place), self.lines), "}",
            ""])

    def _choose(self, strip: str, names: str) -> None:
        """Call the code for strips within the grid, or that for those at its boundary."""
        self._begin()
        low, high = (max(each.needed[0][side] for each in self.chain.versions) for side in (0, 1))
        tests = []
        if not self.periodic[Y]:
            tests += [f"region.origin[1] + first >= {low}", f"region.origin[1] + last + {high} <= region.shape[1]"]
        if not self.periodic[X]:
            tests += [f"region.origin[2] + strip >= {self.side}",
                      f"region.origin[2] + strip + {self.inner + self.side} <= region.shape[2]"]
        if self.settled:
            self.add(1, f"if ({' && '.join(tests)})", f"    {strip}<false>({names});", "else",
                     f"    {strip}<true>({names});")
        else:
            self.add(1, f"{strip}<false>({names});")

    def _begin(self) -> None:
        """Write the start of the warp's strip and its range of rows."""
        self.add(1, f"const int strip = (region.low[2] & ~{self.how.lanes - 1}) + (int)(blockIdx.x * {self.how.warps}"
                    f" + threadIdx.y) * {self.inner};",
                 "if (strip >= region.high[2]) return;",
                 "const long long rows = region.high[1] - region.low[1];",
                 "const int first = region.low[1] + (int)(rows * blockIdx.y / gridDim.y);",
                 "const int last = region.low[1] + (int)(rows * (blockIdx.y + 1) / gridDim.y);")

    def place(self, axis: int, index: str) -> str:
        """Return the index in the whole grid of a place of the patch."""
        cell = f"region.origin[{axis}] + {index}"
        return f"vp_wrapped({cell}, region.shape[{axis}])" if self.periodic[axis] else cell

    # -- before the first row -----------------------------------------------------------------------------------------

    def _declare_place(self) -> None:
        lanes, chain = self.how.lanes, self.chain
        before = max(each.needed[0][0] - each.delay for each in chain.given)
        behind = max(stage.delay for stage in chain.stages) + 1
        reach = max(each.needed[1][1] for each in chain.given)
        self._begin()
        self.add(1, f"const int lane = threadIdx.x, x = strip - {self.side} + lane * {lanes};",
                 f"const int begin = first - {before}, end = last + {behind - 1};",
                 f"const int at_x = min(x, (region.high[2] + {reach - 1}) & ~{lanes - 1});",
                 f"const bool inside = lane >= {self.side // lanes} && lane < {WARP - self.side // lanes} && "
                 f"x < region.high[2] && x + {lanes} > region.low[2];",
                 f"const bool whole = x >= region.low[2] && x + {lanes} <= region.high[2];")
        if self.settled:
            self._outside()

    def _outside(self) -> None:
        """Write the grid's range of rows, and bit masks of the thread's cells beyond the grid, below and above."""
        if not self.periodic[Y]:
            self.add(1, "const int bottom = (int)max(-region.origin[1], -2147483647LL);",
                     "const int top = (int)min(region.shape[1] - region.origin[1], 2147483647LL);")
        if not self.periodic[X]:
            self.add(1, "unsigned below = 0, above = 0;", "#pragma unroll",
                     f"for (int l = 0; l < {self.how.lanes}; ++l) {{",
                     "    below |= (unsigned)(region.origin[2] + x + l < 0) << l;",
                     "    above |= (unsigned)(region.origin[2] + x + l >= region.shape[2]) << l;", "}",
                     "const bool rim = __any_sync(0xffffffffu, (below | above) != 0);")

    def _registers(self) -> None:
        for version in self.chain.versions:
            self.add(1, f"{version.c} {version.name}[{version.depth}][{self.how.lanes}] = {{}};")
        for version in self.chain.given:
            for row in range(self.chain.ahead):
                self._load(1, version, row, row)

    def _load(self, depth: int, version: Version, rows: int, turn: int) -> None:
        """Write the load of a version's row, ``rows`` behind the turn's newest, in a turn counted from the loop's
        first.
        """
        (low, high), at = version.needed[0], shifted("begin" if depth == 1 else "s", rows - version.delay)
        self.add(depth, f"vp_load<{self.how.lanes}>({version.name}[{turn % version.depth}], {version.name}_in + "
                        f"(long long)min(max({at}, region.low[1] - {low}), region.high[1] - 1 + {high}) * region.pitch"
                        " + at_x);")

    # -- every row ----------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        self.add(1, "for (int s = begin; s < end;) {")
        for turn in range(self.chain.turns):
            for version in self.chain.given:
                self._load(2, version, self.chain.ahead, turn + self.chain.ahead)
            for stage in self.chain.stages:
                self._stage(stage, turn)
            self.add(2, "if (++s >= end) break;")
        self.add(1, "}")

    def _slot(self, version: Version, age: int, turn: int) -> str:
        """Return the registers of a row, by how far it is behind the version's newest."""
        return f"{version.name}[{(turn - age) % version.depth}]"

    def _stage(self, stage: ChainStage, turn: int) -> None:
        lanes = self.how.lanes
        self.add(2, "{")
        around: dict[tuple[str, int], int] = {}
        for read, version in stage.reads:
            for row in sorted({offset[Y] for offset in read.offsets}):
                along = [offset[X] for offset in read.offsets if offset[Y] == row]
                own = self._slot(version, stage.delay - row - version.delay, turn)
                if any(along):
                    around[read.name, row] = left = max(0, -min(along))
                    self._gather(f"{read.name}_{row + 1}", version, own, left, max(0, *along))

        def neighbour(read: FieldRead, offset: Offset) -> str:
            version = next(one for each, one in stage.reads if each is read)
            if (read.name, offset[Y]) in around:
                return f"{read.name}_{offset[Y] + 1}[{shifted('l', offset[X] + around[read.name, offset[Y]])}]"
            return f"{self._slot(version, stage.delay - offset[Y] - version.delay, turn)}[l]"

        results = {write.field: self._slot(version, 0, turn) for write, version in stage.writes}
        place = shifted("s", -stage.delay)
        loop = "#pragma unroll", f"for (int l = 0; l < {lanes}; ++l)"
        calls = ["    " + stage.cell.call(lambda write: f"{results[write.field]}[l]", neighbour,
                                          lambda axis: self.place(axis, "x + l" if axis == X else place), exact=exact)
                 for exact in (False, True)]
        if stage.cell.divides:
            self.add(3, "bool sure = true;", *loop, calls[0], "if (!sure)")
            self.add(4, *loop, calls[1])
        else:
            self.add(3, *loop, calls[0])
        for _, version in stage.writes:
            if version in self.settled:
                self._write_cells_outside(version, place, turn)
        if stored := [version for _, version in stage.writes if version.stored]:
            self._store(stored, place, turn)
        self.add(2, "}")

    def _gather(self, name: str, version: Version, own: str, left: int, right: int) -> None:
        """Write the row of a version together with the neighbouring cells of the thread's."""
        lanes = self.how.lanes
        self.add(3, f"{version.c} {name}[{left + lanes + right}];",
                 f"for (int l = 0; l < {lanes}; ++l) {name}[l + {left}] = {own}[l];",
                 *(f"{name}[{left - 1 - i}] = __shfl_up_sync(0xffffffffu, {own}[{lanes - 1 - i}], 1);"
                   for i in range(left)),
                 *(f"{name}[{left + lanes + i}] = __shfl_down_sync(0xffffffffu, {own}[{i}], 1);"
                   for i in range(right)))

    def _write_cells_outside(self, version: Version, row: str, turn: int) -> None:
        """Write the cells beyond the grid in a row of a version: whole rows first, then cells along x."""
        new, sides, lanes = self._slot(version, 0, turn), self.sides[version.field], self.how.lanes
        self.add(3, "if (rims) {")
        before = self._slot(version, 1, turn)

        def fill(depth: int, test: str, value: str) -> None:
            self.add(depth, f"if ({test}) for (int l = 0; l < {lanes}; ++l) {value};")

        if not self.periodic[Y]:
            if sides[0] != "mirrored":
                fill(4, f"{row} < bottom", f"{new}[l] = {sides[0]}")
            fill(4, f"{row} >= top", f"{new}[l] = {f'{before}[l]' if sides[1] == 'mirrored' else sides[1]}")
        if not self.periodic[X]:
            self._write_ends_outside(version, new, sides)
        if not self.periodic[Y] and sides[0] == "mirrored" and version.depth > 1:
            fill(4, f"{row} == bottom", f"{before}[l] = {new}[l]")
        self.add(3, "}")

    def _write_ends_outside(self, version: Version, new: str, sides: Sides) -> None:
        lanes = self.how.lanes
        below, above = sides[2], sides[3]
        self.add(4, "if (rim) {")
        if below == "mirrored":
            below = "from_right[l]"
            self.add(5, f"{version.c} from_right[{lanes}];",
                     f"for (int l = 0; l + 1 < {lanes}; ++l) from_right[l] = {new}[l + 1];",
                     f"from_right[{lanes - 1}] = __shfl_down_sync(0xffffffffu, {new}[0], 1);")
        if above == "mirrored":
            above = "from_left[l]"
            self.add(5, f"{version.c} from_left[{lanes}];",
                     f"for (int l = 1; l < {lanes}; ++l) from_left[l] = {new}[l - 1];",
                     f"from_left[0] = __shfl_up_sync(0xffffffffu, {new}[{lanes - 1}], 1);")
        self.add(5, "#pragma unroll", f"for (int l = 0; l < {lanes}; ++l)",
                 f"    {new}[l] = below >> l & 1 ? {below} : above >> l & 1 ? {above} : {new}[l];")
        self.add(4, "}")

    def _store(self, stored: list[Version], row: str, turn: int) -> None:
        lanes = self.how.lanes
        self.add(3, f"if (inside && {row} >= first && {row} < last) {{",
                 f"    const long long place = (long long)({row}) * region.pitch + x;", "    if (whole) {",
                 *(f"        vp_store<{lanes}>({each.name}_out + place, {self._slot(each, 0, turn)});"
                   for each in stored),
                 "    } else {", f"        for (int l = 0; l < {lanes}; ++l)",
                 "            if (x + l >= region.low[2] && x + l < region.high[2]) {",
                 *(f"                {each.name}_out[place + l] = {self._slot(each, 0, turn)}[l];" for each in stored),
                 "            }", "    }", "}")
