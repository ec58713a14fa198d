"""Step that looks for NaN and infinities."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gpu_worker.device.base import Source
from gpu_worker.device.memory.partition import HeldArray, Partition
from gpu_worker.exchange.base import JoinedWorld
from gpu_worker.execution.passes.run_context import BlockForm, RunContext
from gpu_worker.execution.passes.step_handlers import StepHandler, handles
from gpu_worker.protocol.errors import NotFinite, Place, PlanError
from gpu_worker.protocol.plans import CheckFiniteStep

_SOURCE = Source("""
// How many words are left from the first one on whose exponent has all bits set, as those of NaN and infinities have.
template <typename Word>
__global__ void left_from_first(const Word* words, long long count, Word exponent, unsigned long long* left)
{
    const long long all = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += all)
        if ((words[i] & exponent) == exponent)
            atomicMax(left, (unsigned long long)(count - i));
}
""", file="check_finite.cu")

#: By the bytes of a float its words in C++, and the word of an infinity.
_WORDS: dict[int, tuple[str, np.generic]] = {
    2: ("unsigned short", np.uint16(0x7c00)), 4: ("unsigned int", np.uint32(0x7f800000)),
    8: ("unsigned long long", np.uint64(0x7ff0000000000000))}
_THREADS = 256


@handles(CheckFiniteStep)
class CheckFiniteHandler(StepHandler[CheckFiniteStep]):
    """Handler of a step that raises NotFinite where a number is none."""

    on_device = True

    @property
    def leaves_host_memory(self) -> bool:
        return True         # what it found, which a replay would not look at

    @property
    def blocks(self) -> BlockForm:
        return BlockForm.ANY

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        values = context.each(self, values, context.to_device)
        # Windows of patches stay what they are, with their ghost cells: copies of them are looked at.
        copies = {} if context.grid is None else context.run_together(self, values, context.grid.flattened)
        left = {value.index: self._finite(context, value, [copies.get(id(array), array) for array in value.arrays])
                for value in values}
        for device in dict.fromkeys([value.device for value in values]):
            device.synchronize(stream=context.streams.main(device))
        for copy in copies.values():
            copy.close()
        wrong = next(filter(None, [_describe_first(value, left[value.index]) for value in values]), "")
        context.run_together(self, values, lambda _: _raise_at_all_nodes(context.world, wrong))
        return values

    def _finite(self, context: RunContext, value: Partition, arrays: Sequence[HeldArray]) -> np.ndarray:
        """Return the number of words, by array, from the first one on that is not finite; 0 where all are. It is known
        when the device is done.
        """
        device, stream = value.device, context.streams.main(value.device)
        left = np.zeros(len(arrays), np.uint64)
        if not arrays:
            return left
        results = context.scratch.upload(left, device, stream)
        with context.progress.launching(self.label, (value.index,), device):
            for place, array in enumerate(arrays):
                dtype, count = np.dtype(array.field.dtype), math.prod(array.field.shape)
                if dtype.kind not in "fc" or not count or array.buffer is None:
                    continue
                parts = 2 if dtype.kind == "c" else 1
                word, exponent = _word(dtype.itemsize // parts)
                blocks = min(-(-count * parts // _THREADS), 16 * device.multiprocessors)
                device.launch(device.compile(_SOURCE, f"left_from_first<{word}>"), (blocks,), (_THREADS,),
                              [array.buffer, np.int64(count * parts), exponent,
                               np.uint64(results.address + place * left.itemsize)], stream=stream)
        context.progress.mark(self.label, (value.index,), device, stream)
        device.copy_out(left.view(np.uint8), results, stream=stream)
        context.scratch.forget(results, stream)
        return left


def _word(itemsize: int) -> tuple[str, np.generic]:
    if itemsize not in _WORDS:
        raise PlanError(f"floats of {itemsize} bytes are not looked at for NaN and infinities")
    return _WORDS[itemsize]


def _raise_at_all_nodes(world: JoinedWorld | None, wrong: str) -> None:
    """Raise NotFinite if a partition has a number that is not finite, here or at another node of the plan's world:
    none may wait for one that has ended.
    """
    answers = [wrong.encode()] if world is None else world.gather(wrong.encode())
    first = next(filter(None, answers), b"").decode()
    if first:
        partition, device, message = first.split(" ", 2)
        raise NotFinite(message, Place(partition=int(partition), device=device))


def _describe_first(value: Partition, left: np.ndarray) -> str:
    """Return the partition, the device and the place of the first number of a partition that is not finite; empty if
    all are.
    """
    arrays = [(number, array.field) for number, block in enumerate(value.blocks) for array in block]
    for (number, described), words in zip(arrays, left.tolist(), strict=True):
        if words:
            parts = 2 if np.dtype(described.dtype).kind == "c" else 1
            first = (math.prod(described.shape) * parts - words) // parts
            index = tuple(map(int, np.unravel_index(first, described.shape)))
            what = f"field {described.name!r}" if described.name else "its records"
            return (f"{value.index} {value.device.name} element {index} of {what}, in block {number} of the partition, "
                    "is NaN or infinite")
    return ""
