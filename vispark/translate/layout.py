"""The frame of a kernel: one thread per element, rows through shared memory.

On a GPU neighbouring threads would read rows at a stride; so a block copies its rows flat, 16 bytes at a time, into a
tile in shared memory, where a thread's row starts at an odd stride and the banks do not collide. Results that are rows
go out the same way. The host reads rows where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vispark.translate.prelude import prelude_for

#: Static shared memory that a kernel may have on every GPU, less what the compiler wants for itself.
SHARED_BYTES = 46 * 1024
_BLOCKS = (128, 64, 32)
_PLAIN_BLOCK = 256


@dataclass(frozen=True)
class Port:
    """An array that comes in or goes out, or another parameter.

    ``base`` is the parameter's name and ``declared`` its declaration; ``local`` the name that the body has for the
    element; ``count`` the numbers in a row; ``number`` says that an element is a number rather than a row.
    """

    base: str
    declared: str
    local: str = ""
    c: str = ""
    count: int = 1
    itemsize: int = 0
    number: bool = True
    output: bool = False

    @property
    def stride(self) -> int:
        """The distance of rows in a tile."""
        return self.count | 1

    @property
    def tiled(self) -> bool:
        """Whether rows gain from a tile."""
        return not self.number and self.count > 1


@dataclass(frozen=True)
class Layout:
    """The ports of a kernel, the threads in a block, and whether rows go through tiles."""

    ports: tuple[Port, ...]
    block: int
    staged: bool

    @classmethod
    def of(cls, ports: Sequence[Port]) -> Layout:
        """The largest block whose tiles fit shared memory."""
        row = sum(port.stride * port.itemsize for port in ports if port.tiled)
        for block in _BLOCKS if row else ():
            if row * block <= SHARED_BYTES:
                return cls(tuple(ports), block, True)
        return cls(tuple(ports), _PLAIN_BLOCK if not row else 128, False)


def assemble(name: str, layout: Layout, given: Sequence[Port], body: Sequence[str]) -> str:
    """The kernel's source around its body."""
    declared = [port.declared for port in (*layout.ports, *given)] + ["const long long n"]
    lines = [f'extern "C" __global__ void __launch_bounds__({layout.block})', f"{name}({', '.join(declared)})", "{"]
    lines += _head(layout)
    lines += ["    if (element < n) {", *_numbers(layout), *body, "    }"]
    lines += _tail(layout)
    lines.append("}")
    text = "\n".join(lines) + "\n"
    switch = "#if !defined(STAGED) && !defined(__CUDA_ON_HOST__)\n#define STAGED 1\n#endif\n\n" if layout.staged else ""
    helpers = prelude_for(text)
    return switch + (helpers + "\n" if helpers else "") + text


def _head(layout: Layout) -> list[str]:
    block = layout.block
    lines = [f"    const long long element = blockIdx.x * {block}LL + threadIdx.x;"]
    direct = [_direct(port) for port in layout.ports if not port.number]
    if not layout.staged:
        return lines + direct
    lines += ["#ifdef STAGED", f"    const long long first = blockIdx.x * {block}LL;",
              f"    const int rows = n - first < {block} ? (int)(n - first) : {block};"]
    for port in filter(lambda port: port.tiled, layout.ports):
        lines.append(f"    __shared__ __align__(16) {port.c} {port.local}_tile[{block * port.stride}];")
        if not port.output:
            lines.append(f"    load_tile<{port.count}, {port.stride}>({port.local}_tile, {port.base} + first * "
                         f"{port.count}, rows);")
    if any(port.tiled and not port.output for port in layout.ports):
        lines.append("    __barrier_sync(0);")
    lines += [_in_tile(port) if port.tiled else _direct(port) for port in layout.ports if not port.number]
    return [*lines, "#else", *direct, "#endif"]


def _in_tile(port: Port) -> str:
    constant = "" if port.output else "const "
    return f"    {constant}{port.c}* {port.local} = {port.local}_tile + threadIdx.x * {port.stride};"


def _direct(port: Port) -> str:
    return (f"    {'' if port.output else 'const '}{port.c}* __restrict__ {port.local} = {port.base} + element * "
            f"{port.count};")


def _numbers(layout: Layout) -> list[str]:
    return [f"        const {port.c} {port.local} = {port.base}[element];" for port in layout.ports
            if port.number and not port.output]


def _tail(layout: Layout) -> list[str]:
    tiles = [port for port in layout.ports if port.tiled and port.output]
    if not layout.staged or not tiles:
        return []
    return ["#ifdef STAGED", "    __barrier_sync(0);",
            *(f"    store_tile<{port.count}, {port.stride}>({port.base} + first * {port.count}, {port.local}_tile, "
              "rows);" for port in tiles), "#endif"]
