"""Shapes of kernels that label rows by their nearest centres and sum them up in one pass.

The device's sides are ``vispark/nearest_roles.h``, which says what roles the warps of a thread block have, and
``vispark/nearest_pair.h``, for two thread blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from vispark.translate.codegen.scalar.interface import SHARED_LIMIT

#: Threads of a block, and those of them that add rows up.
THREADS = 512
_ADDERS = 256
#: Rows that go through the ring together, and the fewest and the most of such tiles that it has room for.
TILE = 16
_LEAST_SLOTS, _MOST_SLOTS = 3, 16
#: Cycles of a tile in one pass, as they were measured: of each tile, centre and column. Two passes read each column of
#: it twice, 64 bytes at 16 a cycle, and wait for that alone.
_TILE_CYCLES, _CENTRE_CYCLES, _COLUMN_CYCLES, _TWICE_CYCLES = 2_400, 16, 1.4, 8
#: The fewest columns for which two thread blocks take one pass.
_LEAST_OF_PAIR = 576
#: More sums or scores do not fit a thread's registers.
_MOST_SUMS, _MOST_CENTRES = 140, 160
#: Rows of an epoch that each of two warps may leave open, where one thread block takes a work and where two do.
_WAITING, _WAITING_IN_PAIRS = 128, 192
#: Bytes of notes of such rows, of three epochs, for each that a warp may leave open; and what is beside them.
_NOTE, _NOTES = 4 * 3 * 2, 64
#: Warps that share the columns of the products.
_MULTIPLIERS = 4


@dataclass(frozen=True)
class Roles:
    """All that shapes the kernel of one thread block; ``nearest::Roles`` in C++.

    Attributes
    ----------
    centres, columns : int
        How many centres there are, and numbers in a row.
    slots : int
        Tiles in the ring.
    groups : int
        The centres are dealt to so many groups of the threads that add.
    """

    where = "VISPARK_ONE_PASS"
    cluster = 1

    centres: int
    columns: int
    slots: int
    groups: int

    @property
    def padded(self) -> int:
        """The centres that products are taken with."""
        return -(-self.centres // 8) * 8

    @property
    def own(self) -> int:
        """The centres of a thread that adds."""
        return -(-self.centres // self.groups)

    @property
    def share(self) -> int:
        """The columns of a thread that adds."""
        return -(-self.columns // (_ADDERS // self.groups))

    @property
    def shared(self) -> int:
        """Bytes of shared memory: at least those of ``SharedStorage``."""
        steps = -(-self.columns // 16)
        ring = self.slots * (TILE * self.columns * 4 + TILE + 6 * 8)
        of_centres = self.padded * (steps * 32 + _MULTIPLIERS * 64 + 16 + 4) + steps * 64
        return -(-(ring + of_centres + _MULTIPLIERS * TILE * 4 + _WAITING * _NOTE + _NOTES + 128) // 128) * 128

    def type_of(self, nan: str, kind: str) -> str:
        """Return the C++ type, whose distances and centres are as given."""
        numbers = self.padded, self.centres, self.columns, self.slots, self.groups
        return f"nearest::Roles<{', '.join(map(str, numbers))}, {nan}, {kind}>"


@dataclass(frozen=True)
class Pair:
    """All that shapes the kernel of two thread blocks, a cluster, that deal the columns; ``nearest::Pair`` in C++.

    Attributes
    ----------
    centres, columns, slots : int
        As those of :class:`Roles`.
    """

    #: The GPUs that can, by what the source asks; and how many thread blocks share a work.
    where = "VISPARK_WARPGROUPS"
    cluster = 2

    centres: int
    columns: int
    slots: int

    @property
    def padded(self) -> int:
        """The centres that products are taken with."""
        return -(-self.centres // 8) * 8

    @property
    def own(self) -> int:
        """The centres of a thread that adds."""
        return -(-self.centres // 8)

    @property
    def share(self) -> int:
        """The columns of a thread that adds."""
        return -(-self._own_steps * 16 // 32)

    @property
    def _own_steps(self) -> int:
        return (-(-self.columns // 16) + 1) // 2

    @property
    def shared(self) -> int:
        """Bytes of shared memory: at least those of ``SharedStorage``."""
        ring = self.slots * (TILE * (self._own_steps | 1) * 64 + 16 + 6 * 8)
        scores = 2 * _MULTIPLIERS * (32 * self.padded + 128)
        of_centres = self.padded * (self._own_steps * 32 + 16 + 4) + -(-self.columns // 16) * 64
        return -(-(ring + scores + of_centres + _WAITING_IN_PAIRS * _NOTE + _NOTES + 256) // 128) * 128

    def type_of(self, nan: str, kind: str) -> str:
        """Return the C++ type, whose distances and centres are as given."""
        return f"nearest::Pair<{self.padded}, {self.centres}, {self.columns}, {self.slots}, {nan}, {kind}>"


def jump(shape: Roles | Pair) -> list[str]:
    """Return the code that adds a row to the sums of one of a thread's centres, by a jump to the code of that centre.
    """
    own, share, count = shape.own, shape.share, shape.own * shape.share
    pieces = ["".join(f"add.f32 %{k * share + i}, %{k * share + i}, %{count + 1 + i}; " for i in range(share))
              for k in range(own)]
    sums = [f'"+f"(sums[{i}])' for i in range(count)]
    operands = ['"r"(centre)', *(f'"f"(row[{i}])' for i in range(share))]
    return [
        f"template <> struct nearest::Jump<{own}, {share}> {{",
        f"    static __device__ __forceinline__ void add(float (&sums)[{count}], unsigned centre,",
        f"                                               const float (&row)[{share}])", "    {",
        f'        asm volatile("{{to: .branchtargets {", ".join(f"c{k}" for k in range(own))};"',
        f'                     "brx.idx.uni %{count}, to;"',
        *(f'                     "c{k}: {piece}{"bra.uni done;" if k < own - 1 else ""}"'
          for k, piece in enumerate(pieces)),
        '                     "done:}"',
        *_operands(sums, operands), "    }", "};"]


def _operands(outs: list[str], ins: list[str]) -> list[str]:
    """Return the operands of an asm statement, some in each line."""
    lines = []
    for mark, operands in ((":", outs), (":", ins)):
        rows = [", ".join(operands[i:i + 6]) for i in range(0, len(operands), 6)]
        lines += [f"                     {' ' if i else mark} {row}{',' if i + 1 < len(rows) else ''}"
                  for i, row in enumerate(rows)]
    lines[-1] += ");"
    return lines


def one_pass_for(centres: int, columns: int) -> Roles | Pair | None:
    """Return the shape of a one-pass kernel for the numbers of centres and columns, or None if one pass gains nothing
    or has no room.
    """
    return roles_for(centres, columns) or pair_for(centres, columns)


def pair_for(centres: int, columns: int) -> Pair | None:
    """Return the shape of two thread blocks, or None."""
    if not 16 <= centres <= _MOST_CENTRES or columns % 4 or columns < _LEAST_OF_PAIR:
        return None
    for slots in range(_MOST_SLOTS, _LEAST_SLOTS, -1):
        pair = Pair(centres, columns, slots)
        if pair.own * pair.share <= _MOST_SUMS and pair.shared <= SHARED_LIMIT:
            return pair
    return None


def roles_for(centres: int, columns: int) -> Roles | None:
    """Return the shape of one thread block, or None."""
    if not 2 <= centres <= _MOST_CENTRES or columns % 4:
        return None
    if _TILE_CYCLES + _CENTRE_CYCLES * centres + _COLUMN_CYCLES * columns >= _TWICE_CYCLES * columns:
        return None
    for slots in range(_MOST_SLOTS, _LEAST_SLOTS - 1, -1):
        for groups in (2, 4, 8):
            roles = Roles(centres, columns, slots, groups)
            fills = groups == 8 or _ADDERS // groups <= columns
            if fills and roles.own * roles.share <= _MOST_SUMS and roles.shared <= SHARED_LIMIT:
                return roles
    return None
