"""Kernels of the generator launched by hand, on memory of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from gpu_worker.device.base import Buffer, Device, Source
from gpu_worker.device.memory.grid.boxes import Box
from gpu_worker.device.memory.grid.layout import LINE, PatchLayout
from gpu_worker.device.memory.grid.patches import lifted
from gpu_worker.execution.grid.stencils import REGION
from vispark.translate import StencilKernel

KERNELS = Path(__file__).parent / "kernels" / "rows.cu"
THREADS = 128

#: Planes of noise, or rows of a grid of two axes, that come again and again.
_STRETCH = 37, 1021

LaunchCall = Callable[[], None]


class Buffers:
    """Buffers of a device that are closed together."""

    def __init__(self, device: Device):
        self.device = device
        self.stream = device.stream()
        self._buffers: list[Buffer] = []

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.device.synchronize(stream=self.stream)
        for buffer in self._buffers:
            buffer.close()

    def allocate(self, nbytes: int) -> Buffer:
        self._buffers.append(self.device.allocate(nbytes, stream=self.stream))
        return self._buffers[-1]

    def put(self, array: np.ndarray) -> Buffer:
        """Put an array's copy on the device."""
        buffer = self.allocate(array.nbytes)
        self.device.copy_in(buffer, np.ascontiguousarray(array).reshape(-1).view(np.uint8), stream=self.stream)
        self.device.synchronize(stream=self.stream)
        return buffer

    def put_again(self, array: np.ndarray, nbytes: int) -> Buffer:
        """Put an array again and again, so many bytes of it."""
        buffer, data = self.allocate(nbytes), array.reshape(-1)
        count = nbytes // data.itemsize
        for first in range(0, count, len(data)):
            self._put(buffer, data[:count - first], first)
        self.device.synchronize(stream=self.stream)
        return buffer

    def _put(self, buffer: Buffer, array: np.ndarray, first: int) -> None:
        """Copy elements from ``first`` on; the array must last until the stream is synchronized."""
        data = array.reshape(-1).view(np.uint8)
        target = Buffer(self.device, buffer.address + first * array.itemsize, data.nbytes)
        self.device.copy_in(target, data, stream=self.stream)

    def get(self, buffer: Buffer, dtype: str, count: int, first: int = 0) -> np.ndarray:
        """Return so many elements of a buffer."""
        elements = np.zeros(count, dtype)
        part = Buffer(self.device, buffer.address + first * elements.itemsize, elements.nbytes)
        self.device.copy_out(elements.view(np.uint8), part, stream=self.stream)
        self.device.synchronize(stream=self.stream)
        return elements

    def keep_only(self, *kept: dict[str, Buffer]) -> None:
        """Close all other buffers."""
        wanted = {id(buffer) for each in kept for buffer in each.values()}
        self.device.synchronize(stream=self.stream)
        for buffer in self._buffers:
            if id(buffer) not in wanted:
                buffer.close()
        self._buffers = [buffer for buffer in self._buffers if id(buffer) in wanted]

    def launched(self, source: Source, name: str, grid: Sequence[int], block: Sequence[int], arguments: Sequence,
                 shared: int = 0) -> LaunchCall:
        """Return a function that launches a kernel and waits for it."""
        kernel = self.device.compile(source, name)

        def run() -> None:
            self.device.launch(kernel, tuple(grid), tuple(block), arguments, shared=shared, stream=self.stream)
            self.device.synchronize(stream=self.stream)
        return run


class GridPatch(Buffers):
    """Fields of float32 of one grid, as a worker lays them out; ghost cells are 0.

    Parameters
    ----------
    device : Device
    shape : sequence of int
        The grid's cells along each axis.
    halo : sequence of (int, int)
        How far kernels reach along each.
    """

    def __init__(self, device: Device, shape: Sequence[int], halo: Sequence[tuple[int, int]]):
        super().__init__(device)
        self._shape = tuple(shape)
        cells = lifted(self._shape, 1)
        self._layout = PatchLayout(Box((0, 0, 0), cells), lifted([max(widths) for widths in halo], 0))
        self._region = np.array((self._layout.pitch, self._layout.plane, (0, 0, 0), cells, (0, 0, 0), cells),
                                REGION)[()]
        self.size = int(np.prod(cells))

    def noisy(self, names: Iterable[str]) -> dict[str, Buffer]:
        """Return fields of noise in [0, 1) that does not fit the grid and comes again."""
        return {name: self._noise(np.random.default_rng(seed)) for seed, name in enumerate(names)}

    def _noise(self, random: np.random.Generator) -> Buffer:
        """Return a field of noise, whose slowest axis is filled with a stretch of it, again and again."""
        layout, (nz, ny, nx) = self._layout, self._layout.box.shape
        axis, unit = (0, layout.plane) if nz > 1 else (1, layout.pitch)
        extent, head = layout.box.shape[axis], LINE + layout.ghosts[axis] * unit
        stretch = np.zeros((min(extent, _STRETCH[axis]), unit), np.float32)
        rows = stretch.reshape(len(stretch), -1, layout.pitch)
        rows[:, layout.ghosts[1] * (1 - axis):][:, :ny if axis == 0 else 1, :nx] = random.random(
            (len(stretch), ny if axis == 0 else 1, nx), np.float32)
        buffer = self.allocate(layout.elements * 4)
        behind = head + extent * unit
        around = np.zeros(max(head, layout.elements - behind), np.float32)
        self._put(buffer, around[:head], 0)
        for first in range(0, extent, len(stretch)):
            self._put(buffer, stretch[:extent - first], head + first * unit)
        self._put(buffer, around[:layout.elements - behind], behind)
        self.device.synchronize(stream=self.stream)
        return buffer

    def cells(self, buffer: Buffer) -> np.ndarray:
        """Return the cells of a field, on the host."""
        flat = self.get(buffer, "f4", self._layout.elements)
        return self._layout.view(flat).reshape(self._shape)

    def launch(self, kernel: StencilKernel, values: Sequence, fields: dict[str, Buffer]
               ) -> tuple[LaunchCall, dict[str, Buffer]]:
        """Return a launch over all cells, and what it writes."""
        written = {output.name: self._copy(next(iter(fields.values()))) for output in kernel.outputs}
        addresses = [np.uint64(buffer.address + self._layout.origin * 4)
                     for buffer in (*(fields[name] for name in kernel.fields), *written.values())]
        source = Source(kernel.source, f"{kernel.name}.cu", kernel.options)
        cells = self._layout.box.shape
        return self.launched(source, kernel.name, kernel.grid((0, 0, 0), cells), kernel.block,
                             [*addresses, self._region, *values], kernel.shared), written

    def advanced(self, kernel: StencilKernel, values: Sequence, fields: dict[str, Buffer]) -> dict[str, Buffer]:
        """Return the fields that a launch over all cells writes."""
        run, written = self.launch(kernel, values, fields)
        run()
        return written

    def differing(self, one: Buffer, other: Buffer) -> int:
        """Count the cells of two fields that differ in a bit."""
        nz, ny, nx = self._layout.box.shape
        counts = self.put(np.full(nz * ny, 1, np.uint32))
        addresses = [np.uint64(each.address + self._layout.origin * 4) for each in (one, other)]
        self.launched(Source(KERNELS.read_text(), KERNELS.name, ("-DCOLUMNS=1",)), "differing",
                      (-(-nz * ny // THREADS),), (THREADS,),
                      [*addresses, counts, np.int64(self._layout.pitch), np.int64(self._layout.plane), np.int32(nx),
                       np.int32(ny), np.int32(nz)])()
        return int(self.get(counts, "u4", nz * ny).sum())

    def _copy(self, buffer: Buffer) -> Buffer:
        """Return another buffer of the same content: its ghost cells are 0."""
        copy = self.allocate(buffer.nbytes)
        self.device.copy_across(copy, buffer, stream=self.stream)
        return copy
