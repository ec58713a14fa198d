"""Host body of a chain of stencils: intermediate rows stay in the processor's cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vispark.translate.stencils.chain import Chain, ChainStage, Sides, Version, X, Y
from vispark.translate.stencils.frame import FieldRead, Offset, shifted

#: Cells of a strip along x: long enough for the processor to see what comes next, and short enough for its cache.
_STRIP = 2048


def host_strips(chain: Chain, side: int, lanes: int, sides: Mapping[str, Sides],
                place: Callable[[int, str], str]) -> list[str]:
    """Return the lines of the body: the first thread of the first block of a row of blocks goes through all of the
    strips.

    Parameters
    ----------
    side : int
        Cells on either side of a strip that are computed for those within.
    lanes : int
        The region's start along x is rounded down to these, as on a GPU.
    sides : mapping of str to Sides
        How fields continue.
    place : callable
        The index in the whole grid of a place along an axis.
    """
    width = _STRIP + 2 * side
    before = max(each.needed[0][0] - each.delay for each in chain.given)
    behind = max(stage.delay for stage in chain.stages)
    stored = [version for stage in chain.stages if _passes_on(stage) for _, version in stage.writes]
    lines = ["if (threadIdx.x != 0 || threadIdx.y != 0 || blockIdx.x != 0) return;",
             "const long long rows = region.high[1] - region.low[1];",
             "const int first = region.low[1] + (int)(rows * blockIdx.y / gridDim.y);",
             "const int last = region.low[1] + (int)(rows * (blockIdx.y + 1) / gridDim.y);",
             f"const int begin = first - {before}, base = begin - {behind + 2};",
             "const int bottom = (int)max(-region.origin[1], -2147483647LL);",
             "const int top = (int)min(region.shape[1] - region.origin[1], 2147483647LL);",
             *(f"{each.c} {each.name}[{_deep(each)}][{width}] = {{}};" for each in stored),
             f"for (int corner = (region.low[2] & ~{lanes - 1}) - {side}; corner + {side} < region.high[2]; corner += "
             f"{_STRIP}) {{",
             f"    const int width = min({width}, region.high[2] + {side} - corner);",
             "    const int start = (int)max(-region.origin[2] - corner, 0LL);",
             "    const int stop = (int)min(region.shape[2] - region.origin[2] - corner, (long long)width);",
             f"    for (int s = begin; s < last + {behind}; ++s) {{"]
    for stage in chain.stages:
        lines += ["    " * 2 + line for line in _staged(stage, side, sides, place)]
    return ["    " + line for line in [*lines, "    }", "}"]]


def _passes_on(stage: ChainStage) -> bool:
    """Return whether a stage's results are kept in rows for other stages or dropped; if not, they are written straight
    to memory.
    """
    return any(version.reads or not version.stored for _, version in stage.writes)


def _deep(version: Version) -> int:
    """Return the rows of a version that are kept, with one more behind them."""
    return max(2, version.depth)


def _row(version: Version, row: str) -> str:
    """Return the C++ address of a row of a version; versions from memory are read there."""
    if version.stage < 0:
        return f"{version.name}_in + ({row}) * region.pitch + corner"
    return f"{version.name}[({row} - base) % {_deep(version)}]"


def _staged(stage: ChainStage, rim: int, sides: Mapping[str, Sides], place: Callable[[int, str], str]) -> list[str]:
    """Return the code for one stencil's row."""
    low, high = (max(version.needed[0][side] for _, version in stage.writes) for side in (0, 1))
    lines = ["{", f"    const int row = {shifted('s', -stage.delay)};",
             f"    if (row >= {shifted('first', -low)} && row < {shifted('last', high)}) {{"]
    inner = [f"const {read.c}* __restrict__ {_pointer(read, row)} = {_row(version, shifted('row', row))};"
             for read, version in stage.reads for row in sorted({offset[Y] for offset in read.offsets})]
    for write, version in stage.writes:
        to = _row(version, "row") if _passes_on(stage) else \
            f"{version.name}_out + (long long)row * region.pitch + corner"
        inner.append(f"{write.c}* __restrict__ {write.name}_to = {to};")

    def neighbour(read: FieldRead, offset: Offset) -> str:
        return f"{_pointer(read, offset[Y])}[{shifted('l', offset[X])}]"

    call = stage.cell.call(lambda write: f"{write.name}_to[l]", neighbour,
                           lambda axis: place(axis, "corner + l" if axis == X else "row"), exact=True)
    within = f"max({rim}, region.low[2] - corner)", f"min(width - {rim}, region.high[2] - corner)"
    if _passes_on(stage):
        left = max(max(0, -offset[X]) for read, _ in stage.reads for offset in read.offsets)
        right = max(max(0, offset[X]) for read, _ in stage.reads for offset in read.offsets)
        begin, end = str(left), shifted("width", -right)
    else:
        begin, end = within
    inner += ["bool sure = true;"] if stage.cell.divides else []
    inner += [f"const int l_end = {end};", "#pragma GCC ivdep", f"for (int l = {begin}; l < l_end; ++l)",
              f"    {call}"]
    for write, version in stage.writes:
        if version.continued:
            inner += _cells_outside(version, f"{write.name}_to", sides[version.field])
        if version.stored and _passes_on(stage):
            copied = f"{version.name}_out[(long long)row * region.pitch + corner + l] = {write.name}_to[l];"
            inner += ["if (row >= first && row < last)", f"    for (int l = {within[0]}; l < {within[1]}; ++l)",
                      f"        {copied}"]
    lines += ["        " + line for line in inner]
    return [*lines, "    }", "}"]


def _cells_outside(version: Version, new: str, sides: Sides) -> list[str]:
    """Return the code for cells beyond the grid: whole rows first, then cells along x."""
    lines, before = [], _row(version, "row - 1")
    if sides[0] != "periodic":
        if sides[0] != "mirrored":
            lines.append(f"if (row < bottom) for (int l = 0; l < width; ++l) {new}[l] = {sides[0]};")
        value = f"{before}[l]" if sides[1] == "mirrored" else sides[1]
        lines.append(f"if (row >= top) for (int l = 0; l < width; ++l) {new}[l] = {value};")
    if sides[2] != "periodic":
        low = f"{new}[start]" if sides[2] == "mirrored" else sides[2]
        high = f"{new}[stop - 1]" if sides[3] == "mirrored" else sides[3]
        lines += [f"for (int l = 0; l < min(start, width); ++l) {new}[l] = {low};",
                  f"for (int l = max(stop, 0); l < width; ++l) {new}[l] = {high};"]
    if sides[0] == "mirrored":
        lines.append(f"if (row == bottom) for (int l = 0; l < width; ++l) {before}[l] = {new}[l];")
    return lines


def _pointer(read: FieldRead, row: int) -> str:
    """Return the name of the address of a row."""
    return f"{read.name}_row_{row}".replace("-", "m")
