"""Step that keeps what a fold gives, as a table that later plans take as an argument."""

from __future__ import annotations

import numpy as np

from gpu_worker.execution import folds
from gpu_worker.execution.folds import FoldResult
from gpu_worker.execution.held_tables import KEYS, TABLE, VALUES
from gpu_worker.execution.plan_checks import dtype_of, require
from gpu_worker.execution.run_context import RunContext
from gpu_worker.execution.step_handlers import KeepingHandler, handles
from gpu_worker.memory.partition import HeldArray, Partition
from gpu_worker.protocol.errors import KeysRefused
from gpu_worker.protocol.messages import Field, KeepStep, Plan
from gpu_worker.protocol.plans import KeepTableStep

#: A Python int that is folded is exact while sizes stay below this.
_SAFE = 2.0 ** 62


@handles(KeepTableStep)
class KeepTableHandler(KeepingHandler[KeepTableStep]):
    """Handler of a step that keeps the result of a fold."""

    def verify(self, plan: Plan) -> None:
        require(dtype_of(self.step.dtype).kind in "biu", "the keys of a table are integers")

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        return values

    def keep_fold(self, context: RunContext) -> bool:
        """Set the table aside, to be bound.

        Raises
        ------
        KeysRefused
            If the fold may not be what Python's is: an integer that overflows, or floats that are compared and NaN.
        """
        result = folds.join(context.results.partials)
        _check(result)
        device = context.streams.place(context.vrdd(self.step.slot), TABLE, context.plan.devices)
        table = Partition(TABLE, 0, None, self.step.empty, [], device)
        if result is not None:
            arrays = self._rows(result)
            stream, block = context.streams.main(device), []
            for name, array in arrays.items():
                held = HeldArray(Field(name, array.dtype.str, array.shape))
                held.buffer = context.scratch.allocate(held.nbytes, device, stream)
                device.copy_in(held.buffer, array.reshape(-1).view(np.uint8), stream=stream)
                block.append(held)
            device.synchronize(stream=stream)
            table.count, table.layout, table.blocks = len(arrays[KEYS]), self.step.layout, [tuple(block)]
        context.results.pending.append((KeepStep(self.step.slot, self.step.name, "device"), table))
        return True

    def _rows(self, result: FoldResult) -> dict[str, np.ndarray]:
        """Return the table's fields."""
        dtype = np.dtype(self.step.dtype)
        values = {each.field.name: each.values.reshape(each.field.shape) for each in result.fields}
        if result.counts is None:
            named = {f"{VALUES}.{name}" if name else VALUES: np.ascontiguousarray(array[np.newaxis])
                     for name, array in values.items()}
            return {KEYS: np.zeros(1, dtype)} | named
        keys = result.counts.nonzero()[0]
        if len(keys) < len(result.counts):
            values = {name: array[keys] for name, array in values.items()}
        return {KEYS: keys.astype(dtype)} | {name: np.ascontiguousarray(array) for name, array in values.items()}


def _check(result: FoldResult | None) -> None:
    for each in result.fields if result is not None else ():
        if not each.ordered:
            raise KeysRefused("values that are compared are NaN")
        if each.magnitude >= _SAFE:
            raise KeysRefused("an integer may overflow, which Python's do not")
