"""Table of a plan's launches, by step and variant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpu_worker.protocol.messages import Launch, Step, Variant


class LaunchTable:
    """Table of a plan's launches, and of those blocks that share one.

    Parameters
    ----------
    variants : sequence of Variant
        The plan's variants.
    steps : iterable of (Step, bool)
        Its steps with a launch in each variant, in order, and whether each block has results of its own.
    """

    def __init__(self, variants: Sequence[Variant], steps: Iterable[tuple[Step, bool]]):
        self._variants = variants
        self._positions: dict[int, int] = {}
        #: The steps whose results are each block's own, and may be of any shape in one launch.
        self._by_block: set[int] = set()
        for position, (step, is_by_block) in enumerate(steps):
            self._positions[id(step)] = position
            if is_by_block:
                self._by_block.add(id(step))
        self._groups: dict[tuple[int, int], int] = {}
        self._alike: dict[tuple[int, Launch], int] = {}

    def launch(self, step: Step, variant: int) -> Launch:
        """Return the launch of a step on blocks of a variant."""
        return self._variants[variant].launches[self._positions[id(step)]]

    def is_by_block(self, step: Step) -> bool:
        """Return whether each block has results of its own, and those of blocks are not folded together."""
        return id(step) in self._by_block

    def is_keyless(self, step: Step, variants: Iterable[int]) -> bool:
        """Return whether the results of a step on blocks of some variants have keys of their own."""
        return any(self.launch(step, variant).keyless for variant in variants)

    def group(self, step: Step, variant: int) -> int:
        """Return the number of a variant's group: a step's kernel may run over blocks of all variants of a group in one
        launch.
        """
        key = id(step), variant
        if key not in self._groups:
            launch = self.launch(step, variant)
            if id(step) in self._by_block:
                launch = replace(launch, outputs=tuple(replace(each, shape=()) for each in launch.outputs))
            self._groups[key] = self._alike.setdefault((id(step), launch), len(self._alike))
        return self._groups[key]
