"""Frame of one time step: threads march along the slowest axis and keep planes that they read again in registers.

A thread has ``lanes`` neighbouring cells along x, in ``rows`` neighbouring rows. Of each row that it reads at several
planes it keeps these planes, so that memory is read once and 16 bytes at a time. Rows that it reads at one plane only
are those that other threads have just loaded, and come from the cache; so do its neighbours along x, which are loaded
in groups of 1, 2, 4 or 8, as many as lie in one access.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vispark.translate.codegen.scalar.target import by_schedule
from vispark.translate.stencils.frame import (
    AXES,
    LOAD,
    REGION,
    STORE,
    STRIDES,
    Cell,
    FieldRead,
    Offset,
    axes_of,
    moved,
    shifted,
)
from vispark.translate.stencils.one_step_host import host_body


@dataclass(frozen=True)
class March:
    """Tiling of one time step: how threads share the work along marched planes.

    Attributes
    ----------
    threads : (int, int)
        Threads of a block along x and across.
    lanes, rows : int
        A thread's neighbouring cells along x, and rows across.
    chunk : int
        About how many planes a thread goes through.
    ahead : bool
        Whether the next plane is loaded before this one is computed.
    rotating : bool
        Whether the loop's body is written out for as many planes as are kept, each with the registers in another order,
        instead of once and with moves between them.
    least : int
        The least blocks that a multiprocessor is to hold, which bounds the registers; 0 for no bound.
    """

    threads: tuple[int, int]
    lanes: int
    rows: int
    chunk: int
    ahead: bool
    rotating: bool
    least: int = 0

    def tile(self, dims: int) -> tuple[int, int, int]:
        """Return cells of a block along x, y and z; along x less what rounding the region's start down may take."""
        width, height = self.threads[0] * self.lanes - (self.lanes - 1), self.threads[1] * self.rows
        return (width, self.chunk, height) if dims == 2 else (width, height, self.chunk)


def march(cell: Cell, kernel: str, how: March) -> str:
    """Return the source of a kernel that computes a region once."""
    return _OneStepWriter(cell, how).source(kernel)


def registers_of(cell: Cell, how: March) -> int:
    """Return the registers, of 4 bytes, that a thread needs for the planes that it has read."""
    total = 0
    for read in cell.reads:
        field = _Field(cell, read, how)
        for unit, planes in field.planes.items():
            count = max(planes) - min(planes) + 1 + how.ahead if unit in field.kept else len(planes)
            total += count * field.width(unit) * max(1, read.itemsize // 4)
    return total


#: What is read of a row: its own lanes together, or a group beside them, which its first lane stands for.
_OWN = "own"
_Unit = tuple[int, str | int]


class _Field:
    """Reads of one field: the planes of each unit of each row, counted from the thread's first."""

    def __init__(self, cell: Cell, read: FieldRead, how: March):
        along, across = axes_of(cell.dims)
        self.read, self.name = read, read.name
        self.bottom, self.top = read.reach(along)
        self.above, self.below = read.reach(across)
        (left, self.right), self.lanes = read.reach(2), how.lanes
        self.group = _group(left, how), _group(self.right, how)
        self.left = -(left // self.group[0]) * self.group[0]
        self.rows = range(self.above, how.rows + self.below)
        self.deep = self.top - self.bottom + 1 + how.ahead
        self.planes: dict[_Unit, set[int]] = {}
        for offset in read.offsets:
            for j in range(how.rows):
                for lane in range(offset[2], offset[2] + how.lanes):
                    row, own = offset[across] + j, 0 <= lane < how.lanes
                    self.planes.setdefault((row, _OWN if own else self._first(lane)), set()).add(offset[along])
        self.kept = [unit for unit in self.ordered() if self._is_kept(unit, how)]
        self.passing = [unit for unit in self.ordered() if unit not in self.kept]

    def _first(self, lane: int) -> int:
        """Return the first lane of the group that a lane beside a thread's own is loaded with."""
        own = 0 if lane < 0 else self.lanes
        group = self.group[lane > 0]
        return own + (lane - own) // group * group

    def width(self, unit: _Unit) -> int:
        """Return the lanes of a unit."""
        _, lane = unit
        return self.lanes if isinstance(lane, str) else self.group[lane > 0]

    def _is_kept(self, unit: _Unit, how: March) -> bool:
        """Return whether a unit stays in registers from one turn to the next."""
        row, lanes = unit
        own = lanes == _OWN and 0 <= row < how.rows and not self.above and not self.below
        return len(self.planes[unit]) > 1 or (how.ahead and own)

    def ordered(self) -> list[_Unit]:
        """Return units; own lanes before those beside them."""
        return sorted(self.planes, key=lambda unit: (unit[1] != _OWN, unit[0], str(unit[1])))

    def slot(self, plane: int, turn: int) -> int:
        """Return the registers of a plane, counted from the turn's."""
        return (plane - self.bottom + turn) % self.deep

    def cell(self, plane: int, row: int, lane: int | str, turn: int) -> str:
        """Return the register of a cell."""
        return f"{self.name}[{self.slot(plane, turn)}][{row - self.above}][{lane}]"

    def groups(self) -> range:
        """Return the groups to the right of a thread's own lanes."""
        return range(self.lanes, self.lanes + self.right, self.group[1])

    def kept_planes(self, unit: _Unit) -> range:
        """Return the planes that a kept unit has registers for between turns."""
        return range(min(self.planes[unit]), max(self.planes[unit]))


def _group(reach: int, how: March) -> int:
    """Return the number of lanes beside a thread's own that are loaded at once: a power of two, so that the first is
    aligned.
    """
    return min(how.lanes, 1 << (abs(reach) - 1).bit_length()) if reach else 1


class _OneStepWriter:
    """Writer of a kernel of one step."""

    def __init__(self, cell: Cell, how: March):
        self.cell, self.how = cell, how
        self.along, self.across = axes_of(cell.dims)
        self.fields = {read.name: _Field(cell, read, how) for read in cell.reads}
        self.turns = math.lcm(*(field.deep for field in self.fields.values())) if how.rotating else 1
        self.lines: list[str] = []

    def source(self, kernel: str) -> str:
        """Return the whole source."""
        width, height = self.how.threads
        head = self.cell.signature(kernel, f"{width * height}" + (f", {self.how.least}" if self.how.least else ""))
        self._declare_place()
        self._registers()
        self._loop()
        if self.cell.divides:
            self._compute_unsure_cells()
        tile = (width * self.how.lanes, height * self.how.rows, self.how.lanes)
        return "\n".join([REGION, LOAD, STORE, self.cell.text, *head, "{",
                          *by_schedule(host_body(self.cell, *tile), self.lines), "}"]) + "\n"

    def add(self, depth: int, *lines: str) -> None:
        """Add lines."""
        self.lines.extend("    " * depth + line for line in lines)

    # -- before the first plane ---------------------------------------------------------------------------------------

    def _declare_place(self) -> None:
        how, along, across = self.how, AXES[self.along], AXES[self.across]
        width, height = how.threads
        self.add(1, f"const long long along = region.{STRIDES[self.along]}, across = region.{STRIDES[self.across]};",
                 f"const int x = (region.low[2] & ~{how.lanes - 1}) + (blockIdx.x * {width} + threadIdx.x) * "
                 f"{how.lanes};",
                 f"const int row = region.low[{self.across}] + (blockIdx.{across} * {height} + threadIdx.y) * "
                 f"{how.rows};",
                 f"const long long planes = region.high[{self.along}] - region.low[{self.along}];",
                 f"const int first = region.low[{self.along}] + (int)(planes * blockIdx.{along} / gridDim.{along});",
                 f"const int last = region.low[{self.along}] + (int)(planes * (blockIdx.{along} + 1) / "
                 f"gridDim.{along});")
        self.add(1, f"if (x >= region.high[2] || row >= region.high[{self.across}]) return;")

    def _registers(self) -> None:
        how = self.how
        for field in self.fields.values():
            name, width = field.name, field.left + how.lanes + len(field.groups()) * field.group[1]
            self.add(1, f"{field.read.c} {name}[{field.deep}][{len(field.rows)}][{width}];")
            for row in field.rows:
                place = shifted("row", row)
                if row > 0 and how.rows > 1:
                    place = f"min({place}, region.high[{self.across}] - 1 + {field.below})"
                self.add(1, f"const {field.read.c}* {name}_{row - field.above} = {name}_in + first * along + "
                            f"({place}) * across + x;")
            self.add(1, *(f"const int {name}_right_{lane} = {self._readable(field, lane)};" for lane in field.groups()))
        for write in self.cell.writes:
            self.add(1, f"{write.c}* {write.name}_to = {write.name} + first * along + row * across + x;")
        for field in self.fields.values():
            for unit in field.kept:
                planes = field.kept_planes(unit)
                for plane in range(planes.start, planes.stop + how.ahead):
                    self.add(1, *self._load(field, unit, plane, moved("", plane, "along"), 0))

    def _readable(self, field: _Field, lane: int) -> str:
        """Return the C++ offset of a group to the right, clamped to the cells that may be read."""
        if field.group[1] == 1:     # with registers to spare for a block more than by the other way
            return f"min({lane}, region.high[2] - 1 + {field.right} - x)"
        return f"x + {lane} < region.high[2] + {field.right} ? {lane} : 0"

    def _load(self, field: _Field, unit: _Unit, plane: int, step: str, turn: int) -> list[str]:
        """Bring a unit of a plane into its registers; ``step`` leads from this turn's plane to it."""
        row, lanes = unit
        pointer = f"{field.name}_{row - field.above}{step}"
        if isinstance(lanes, str):
            return [f"vp_load<{self.how.lanes}>(&{field.cell(plane, row, field.left, turn)}, {pointer});"]
        target = field.cell(plane, row, field.left + lanes, turn)
        place = f"- {-lanes}" if lanes < 0 else f"+ {field.name}_right_{lanes}"
        return [f"vp_load<{field.width(unit)}>(&{target}, {pointer} {place});"]

    # -- every plane --------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        if self.cell.divides:
            self.add(1, "int again_from = last, again_to = first;")
        self.add(1, "for (int at = first; at < last;) {")
        for turn in range(self.turns):
            self.add(2, "{")
            before = len(self.lines)
            self._turn(turn)
            self.lines[before:] = ["    " + line for line in self.lines[before:]]
            self.add(2, "}", "if (++at >= last) break;" if self.turns > 1 else "++at;")
        self.add(1, "}")

    def _turn(self, turn: int) -> None:
        if self.how.ahead:
            self.add(2, "const long long next = min(1, last - 1 - at) * along;")
        for field in self.fields.values():
            for unit in field.kept:
                plane = field.kept_planes(unit).stop
                step = f" + next{moved('', plane, 'along')}" if self.how.ahead else moved("", plane, "along")
                self.add(2, *self._load(field, unit, plane + self.how.ahead, step, turn))
        for field in self.fields.values():
            for unit in field.passing:
                for plane in sorted(field.planes[unit]):
                    self.add(2, *self._load(field, unit, plane, moved("", plane, "along"), turn))
        self._compute(turn)
        for row in range(self.how.rows):
            self._store(row)
        self._move_on()

    def _compute(self, turn: int) -> None:
        how = self.how
        self.add(2, *(f"{write.c} {write.name}_new[{how.rows}][{how.lanes}];" for write in self.cell.writes))
        if self.cell.divides:
            self.add(2, "bool sure = true;")
        self.add(2, "#pragma unroll", f"for (int r = 0; r < {how.rows}; ++r)")
        self.add(3, "#pragma unroll", f"for (int l = 0; l < {how.lanes}; ++l)")
        if not self.cell.total:
            self.add(4, "if (x + l >= region.low[2] && x + l < region.high[2] && row + r < "
                        f"region.high[{self.across}])")

        def neighbour(read: FieldRead, offset: Offset) -> str:
            field = self.fields[read.name]
            row = shifted("r", offset[self.across] - field.above)
            lane = shifted("l", offset[2] + field.left)
            return f"{field.name}[{field.slot(offset[self.along], turn)}][{row}][{lane}]"

        self.add(4, self.cell.call(lambda write: f"{write.name}_new[r][l]", neighbour, self._place, exact=False))
        if self.cell.divides:
            self.add(2, "if (!sure) {", "    again_from = min(again_from, at);", "    again_to = at + 1;", "}")

    def _place(self, axis: int) -> str:
        index = "x + l" if axis == 2 else "at" if axis == self.along else "row + r"
        return f"region.origin[{axis}] + {index}"

    def _store(self, row: int) -> None:
        lanes, inside = self.how.lanes, f"row + {row} < region.high[{self.across}]"
        whole = f"x >= region.low[2] && x + {lanes} <= region.high[2]"
        self.add(2, f"if ({whole + (f' && {inside}' if row else '')}) {{")
        self.add(3, *(f"vp_store<{lanes}>({write.name}_to{moved('', row, 'across')}, {write.name}_new[{row}]);"
                      for write in self.cell.writes))
        self.add(2, "} else" + (f" if ({inside})" if row else "") + " {")
        self.add(3, "#pragma unroll", f"for (int l = 0; l < {lanes}; ++l)")
        self.add(4, "if (x + l >= region.low[2] && x + l < region.high[2]) {")
        self.add(5, *(f"({write.name}_to{moved('', row, 'across')})[l] = {write.name}_new[{row}][l];"
                      for write in self.cell.writes))
        self.add(4, "}")
        self.add(2, "}")

    def _compute_unsure_cells(self) -> None:
        """Write the code that computes unsure cells again, one after the other, so that the loop has no branches."""
        how, cell = self.how, self.cell

        def neighbour(read: FieldRead, offset: Offset) -> str:
            base = moved(moved(f"base_at + {offset[2]}", offset[self.across], "across"), offset[self.along], "along")
            return f"{read.name}_in[{base}]"

        self.add(1, "for (int at = again_from; at < again_to; ++at)", "    #pragma unroll 1",
                 f"    for (int r = 0; r < {how.rows}; ++r)", "        #pragma unroll 1",
                 f"        for (int l = 0; l < {how.lanes}; ++l) {{",
                 f"            if (x + l < region.low[2] || x + l >= region.high[2] || row + r >= "
                 f"region.high[{self.across}]) continue;",
                 "            const long long base_at = at * along + (row + r) * across + x + l;",
                 "            bool sure = true;",
                 "            " + cell.call(lambda write: f"{write.name}[base_at]", neighbour, self._place, exact=True),
                 "        }")

    def _move_on(self) -> None:
        for field in self.fields.values():
            for unit in field.kept if self.turns == 1 else ():
                (row, first), planes = unit, field.kept_planes(unit)
                lane = shifted("l", field.left + (0 if isinstance(first, str) else first))
                for plane in range(planes.start, planes.stop + self.how.ahead):
                    self.add(2, f"for (int l = 0; l < {field.width(unit)}; ++l) "
                                f"{field.cell(plane, row, lane, 0)} = {field.cell(plane + 1, row, lane, 0)};")
            self.add(2, *(f"{field.name}_{row - field.above} += along;" for row in field.rows))
        self.add(2, *(f"{write.name}_to += along;" for write in self.cell.writes))
