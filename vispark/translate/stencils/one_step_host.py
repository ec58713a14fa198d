"""The host's body of a stencil kernel: loops along x that the compiler turns into vector instructions.

The first thread of a block does the block's whole tile, and the others nothing; blocks run on all cores. Where a grid
has rows, the first block of each does all of it.
"""

from __future__ import annotations

from vispark.translate.stencils.frame import AXES, STRIDES, Cell, FieldRead, Offset, axes_of, moved, shifted


def host_body(cell: Cell, width: int, height: int, lanes: int) -> list[str]:
    """Return the lines of the body.

    Parameters
    ----------
    width, height : int
        Cells of a block's tile along x and across; along the remaining axis the region is dealt to the blocks.
    lanes : int
        The region's start along x is rounded down to these, as on a GPU.
    """
    along, across = axes_of(cell.dims)
    dealt, rows = AXES[along], AXES[across]
    if cell.dims == 1:
        lines = ["if (threadIdx.x != 0 || threadIdx.y != 0) return;",
                 f"const int corner = (region.low[2] & ~{lanes - 1}) + blockIdx.x * {width};",
                 f"const int left = max(corner, region.low[2]), right = min(corner + {width}, region.high[2]);"]
    else:
        lines = ["if (threadIdx.x != 0 || threadIdx.y != 0 || blockIdx.x != 0) return;",
                 "const int left = region.low[2], right = region.high[2];"]
    lines += [f"const int top = region.low[{across}] + blockIdx.{rows} * {height};",
             f"const int end = min(top + {height}, region.high[{across}]);",
             f"const long long planes = region.high[{along}] - region.low[{along}];",
             f"const int first = region.low[{along}] + (int)(planes * blockIdx.{dealt} / gridDim.{dealt});",
             f"const int last = region.low[{along}] + (int)(planes * (blockIdx.{dealt} + 1) / gridDim.{dealt});",
             "for (int at = first; at < last; ++at)",
             "    for (int row = top; row < end; ++row) {",
             f"        const long long place = at * region.{STRIDES[along]} + row * region.{STRIDES[across]};"]
    lines += [f"        const {read.c}* __restrict__ {_pointer(read, offset)} = {read.name}_in + place"
              f"{moved(moved('', offset[0], 'region.plane'), offset[1], 'region.pitch')};"
              for read in cell.reads for offset in _rows(read)]
    lines += [f"        {write.c}* __restrict__ {write.name}_to = {write.name} + place;" for write in cell.writes]

    def neighbour(read: FieldRead, offset: Offset) -> str:
        return f"{_pointer(read, (*offset[:2], 0))}[{shifted('x', offset[2])}]"

    call = cell.call(lambda write: f"{write.name}_to[x]", neighbour,
                     lambda axis: f"region.origin[{axis}] + {('at' if axis == along else 'row') if axis < 2 else 'x'}",
                     exact=True)
    lines += ["        bool sure = true;"] if cell.divides else []
    lines += ["        #pragma GCC ivdep", "        for (int x = left; x < right; ++x)", f"            {call}", "    }"]
    return ["    " + line for line in lines]


def _rows(read: FieldRead) -> list[Offset]:
    """Return the rows of a field that are read."""
    return list(dict.fromkeys((*offset[:2], 0) for offset in read.offsets))


def _pointer(read: FieldRead, row: Offset) -> str:
    """Return the name of the address of a row."""
    return f"{read.name}_row" + "".join(f"_{step}".replace("-", "m") for step in row[:2])
