"""Steps that take the keys or the values of pairs."""

from __future__ import annotations

from gpu_worker.execution.run_context import BlockForm, RunContext
from gpu_worker.execution.step_handlers import StepHandler, handles
from gpu_worker.memory.partition import Partition
from gpu_worker.protocol.messages import KeysStep, ValuesStep


@handles(KeysStep)
class KeysHandler(StepHandler[KeysStep]):
    """Handler of a step that leaves the keys alone."""

    @property
    def blocks(self) -> BlockForm:
        return BlockForm.ANY

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        # Of records that are no pairs the host takes the first items.
        return [value if value.keys is None else context.after(value, value.with_blocks(()), own=True)
                for value in values]


@handles(ValuesStep)
class ValuesHandler(StepHandler[ValuesStep]):
    """Handler of a step that drops the keys."""

    @property
    def blocks(self) -> BlockForm:
        return BlockForm.ANY

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        for value in values:
            value.keys = None
        return values
