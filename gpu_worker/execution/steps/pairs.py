"""Steps that take the keys or the values of pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gpu_worker.device.memory.partition import Partition
from gpu_worker.execution.passes.run_context import BlockForm, RunContext
from gpu_worker.execution.passes.step_handlers import Cuts, StepHandler, every_row, handles
from gpu_worker.protocol.messages import Field, KeysStep, Launch, ValuesStep


@handles(KeysStep)
class KeysHandler(StepHandler[KeysStep]):
    """Handler of a step that leaves the keys alone."""

    by_blocks = True

    @property
    def blocks(self) -> BlockForm:
        return BlockForm.ANY

    def cuts(self, fields: Sequence[Field], launch: Launch | None, works: Callable[[], np.ndarray]) -> Cuts:
        return every_row(fields)

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        # Of records that are no pairs the host takes the first items.
        return [value if value.keys is None else context.after(value, value.with_blocks(()), own=True)
                for value in values]


@handles(ValuesStep)
class ValuesHandler(StepHandler[ValuesStep]):
    """Handler of a step that drops the keys."""

    by_blocks = True

    @property
    def blocks(self) -> BlockForm:
        return BlockForm.ANY

    def cuts(self, fields: Sequence[Field], launch: Launch | None, works: Callable[[], np.ndarray]) -> Cuts:
        return every_row(fields)

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        for value in values:
            value.keys = None
        return values
