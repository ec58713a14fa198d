"""The host's body of a kernel of several time steps: a tile's planes of each step stay in the processor's cache."""

from __future__ import annotations

from collections.abc import Sequence

from vispark.translate.stencils.frame import Carried, Cell, FieldRead, Offset, Tile, TimeSteps, shifted


def host_steps(cells: Sequence[Cell], fields: Sequence[Carried], how: TimeSteps, tile: Tile) -> list[str]:
    """Return the lines of the body: the block's first thread takes each plane of the tile through all steps."""
    steps = how.steps
    lines = ["if (threadIdx.x != 0 || threadIdx.y != 0) return;",
             f"const int corner = (region.low[2] & ~{tile.lanes - 1}) + (int)blockIdx.x * {tile.inner[0]} - "
             f"{tile.side};",
             f"const int top = region.low[1] + (int)blockIdx.y * {tile.inner[1]} - {steps};",
             f"const int width = min({tile.width}, region.high[2] + {steps} - corner);",
             f"const int height = min({tile.height}, region.high[1] + {steps} - top);",
             "const long long planes = region.high[0] - region.low[0];",
             "const int first = region.low[0] + (int)(planes * blockIdx.z / gridDim.z);",
             "const int last = region.low[0] + (int)(planes * (blockIdx.z + 1) / gridDim.z);",
             f"const int base = first - {steps};",
             "// Of each step three planes: the cells of plane z are at [(z - base) % 3].",
             *(f"{each.c} {each.name}[{steps + 1}][3][{tile.height}][{tile.width}];" for each in fields),
             *_alive("left", "right", "corner", "width", 2, how),
             *_alive("above", "below", "top", "height", 1, how),
             f"for (int s = base; s < last + {steps}; ++s) {{",
             "    for (int r = 0; r < height; ++r) {",
             "        const long long place = s * region.plane + (long long)(top + r) * region.pitch + corner;",
             *(f"        for (int l = 0; l < width; ++l) {each.name}[0][(s - base) % 3][r][l] = "
               f"{each.name}_in[place + l];" for each in fields if each.loaded),
             "    }"]
    alike = all(cell is cells[0] for cell in cells)
    for level, cell in enumerate(cells[:1] if alike else cells):
        start, stop = (0, steps) if alike else (level, level + 1)
        lines += [f"    for (int t = {start}; t < {stop}; ++t) {{",
                  "        const int at = s - t - 1;",
                  f"        if (at < first - ({steps} - t - 1) || at >= last + ({steps} - t - 1)) continue;",
                  "        const int lower = (at - 1 - base) % 3, middle = (at - base) % 3, upper = (at + 1 - base) % "
                  "3;",
                  f"        const bool deep = {'true' if how.periodic(0) else _inside('at', 0)};",
                  "        for (int r = t + 1; r < height - t - 1; ++r) {",
                  *("    " * 3 + line for line in _row(cell, level, fields, how)), "        }", "    }"]
    lines += [*("    " + line for line in _out(fields, how, tile)), "}"]
    return ["    " + line for line in lines]


def _inside(index: str, axis: int) -> str:
    return f"region.origin[{axis}] + {index} >= 0 && region.origin[{axis}] + {index} < region.shape[{axis}]"


def _alive(low: str, high: str, at: str, count: str, axis: int, how: TimeSteps) -> list[str]:
    """Return the range of the tile's cells within the grid along an axis."""
    if how.periodic(axis):
        return [f"const int {low} = 0, {high} = {count};"]
    return [f"const int {low} = (int)max(-region.origin[{axis}] - {at}, 0LL);",
            f"const int {high} = (int)min(region.shape[{axis}] - region.origin[{axis}] - {at}, (long long){count});"]


def _row(cell: Cell, level: int, fields: Sequence[Carried], how: TimeSteps) -> list[str]:
    """Return the code for one row of one step: cells within the grid are computed, the others keep their values."""
    by_field = {each.field: each for each in fields}
    lines = [f"const {read.c}* __restrict__ {_row_name(read, row)} = "
             f"{_address(by_field[read.field].name, read, row, how)};" for read in cell.reads for row in _rows(read)]
    lines += [f"{write.c}* __restrict__ {write.name}_computed = {by_field[write.field].name}[t + 1][middle][r];"
              for write in cell.writes]
    lines += ["const bool alive = deep && r >= above && r < below;",
              "const int from = alive ? max(left, t + 1) : width - t - 1;",
              "const int to = alive ? min(right, width - t - 1) : width - t - 1;"]

    def neighbour(read: FieldRead, offset: Offset) -> str:
        return f"{_row_name(read, (*offset[:2], 0))}[{shifted('l', offset[2])}]"

    def place(axis: int) -> str:
        index = f"region.origin[{axis}] + {('corner + l', 'top + r', 'at')[2 - axis]}"
        return f"vp_wrapped({index}, region.shape[{axis}])" if how.periodic(axis) else index

    lines += [*(["bool sure = true;"] if cell.divides else []), "#pragma GCC ivdep", "for (int l = from; l < to; ++l)",
              f"    {cell.call(lambda write: f'{write.name}_computed[l]', neighbour, place, exact=True)}"]
    for write in cell.writes:
        if by_field[write.field].live[level]:
            unchanged = f"{write.name}_computed[l] = {by_field[write.field].name}[t][middle][r][l];"
            lines += [f"for (int l = t + 1; l < min(from, width - t - 1); ++l) {unchanged}",
                      f"for (int l = max(to, t + 1); l < width - t - 1; ++l) {unchanged}"]
        lines += _mirrored(f"{write.name}_computed", write.field, how)
    written = {write.field for write in cell.writes}
    lines += [f"for (int l = 0; l < width; ++l) {each.name}[t + 1][middle][r][l] = {each.name}[t][middle][r][l];"
              for each in fields if each.field not in written and each.live[level]]
    return lines


def _address(name: str, read: FieldRead, row: Offset, how: TimeSteps) -> str:
    """Return the C++ address of a row of a step; beyond a mirrored side it is the row before the side."""
    plane, along = ("lower", "middle", "upper")[row[0] + 1], shifted("r", row[1])
    if row[0] and how.mirrored(read.field, 0)[row[0] > 0]:
        plane = f"region.origin[0] + at == {'region.shape[0] - 1' if row[0] > 0 else '0'} ? middle : {plane}"
    if row[1] and how.mirrored(read.field, 1)[row[1] > 0]:
        along = f"r == {'below - 1' if row[1] > 0 else 'above'} ? r : {along}"
    return f"{name}[t][{plane}][{along}]"


def _mirrored(row: str, field: str, how: TimeSteps) -> list[str]:
    """Return the cells beyond the mirrored ends of a row."""
    below, above = how.mirrored(field, 2)
    lines = ["if (left > t + 1 && left < width - t - 1) {row}[left - 1] = {row}[left];"] if below else []
    lines += ["if (right > t + 1 && right < width - t - 1) {row}[right] = {row}[right - 1];"] if above else []
    return [line.replace("{row}", row) for line in lines]


def _out(fields: Sequence[Carried], how: TimeSteps, tile: Tile) -> list[str]:
    """Return the last step's plane, less the tile's rim."""
    steps = how.steps
    return [f"const int done = s - {steps};", "if (done < first) continue;",
            f"for (int r = {steps}; r < min({tile.height - steps}, region.high[1] - top); ++r) {{",
            "    const long long place = done * region.plane + (long long)(top + r) * region.pitch + corner;",
            f"    for (int l = max({tile.side}, region.low[2] - corner); l < min({tile.width - tile.side}, "
            "region.high[2] - corner); ++l) {",
            *(f"        {each.out}[place + l] = {each.name}[{steps}][(done - base) % 3][r][l];"
              for each in fields if each.out), "    }", "}"]


def _rows(read: FieldRead) -> list[Offset]:
    """Return the rows of a field that are read."""
    return list(dict.fromkeys((*offset[:2], 0) for offset in read.offsets))


def _row_name(read: FieldRead, row: Offset) -> str:
    return f"{read.name}_row" + "".join(f"_{step}".replace("-", "m") for step in row[:2])
