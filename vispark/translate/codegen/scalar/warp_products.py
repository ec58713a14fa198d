"""Writer of products of matrices by four warps, as Hopper has them (``wgmma``)."""

from __future__ import annotations


def products_by_warps(name: str, width: int, shape: str, ending: str) -> list[str]:
    """Return the product of 64 rows and ``width`` columns by one instruction, whose operands must be written out.

    ``name`` is the template of such products; ``shape`` the terms and types of the instruction, and ``ending`` its last
    operands.
    """
    count = width // 2
    sums = [", ".join(f"%{i}" for i in range(start, min(start + 16, count))) for start in range(0, count, 16)]
    outs = [", ".join(f'"+f"(d[{i}])' for i in range(start, min(start + 8, count))) for start in range(0, count, 8)]
    rows = ", ".join(f"%{count + i}" for i in range(4))
    return [
        f"template <> struct tensor::{name}<{width}> {{",
        f"    static __device__ __forceinline__ void of(float (&d)[{count}], const unsigned (&a)[4],",
        "                                              unsigned long long b, int more)", "    {",
        f'        asm volatile("{{.reg .pred p; setp.ne.b32 p, %{count + 5}, 0; "',
        f'                     "wgmma.mma_async.sync.aligned.m64n{width}{shape} {{"',
        *(f'                     "{line}{", " if number + 1 < len(sums) else ""}"' for number, line in enumerate(sums)),
        f'                     "}}, {{{rows}}}, %{count + 4}, p, {ending};}}"',
        *(f"                     {':' if not number else ' '} {line}{',' if number + 1 < len(outs) else ''}"
          for number, line in enumerate(outs)),
        '                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more));',
        "    }", "};"]
