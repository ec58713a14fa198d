"""Executable plans: the parts that stay the same in all passes of a loop, and the values of each pass.

A pass brings the numbers of VRDDs and the values of arguments. A plan serves all passes whose operations are of the
same shape (:attr:`vispark.plan.operation.RecordedOperation.key`), on content that looks the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpu_worker.protocol.frozen import dataclass
from gpu_worker.protocol.grids import World
from gpu_worker.protocol.messages import Output, Run, Save
from gpu_worker.protocol.payload import Data, aligned, block_bytes, field_offsets
from vispark.data.records import Keyring
from vispark.data.records.partition_schema import FetchedPartition, PartitionSchema
from vispark.errors import WorldLost
from vispark.plan.cuda_source import ArrayValue
from vispark.plan.slots import ArgumentRef, BoundArguments, SlotOrigin

if TYPE_CHECKING:       # tasks that carry plans do without the operations
    from vispark.plan.ops import LogicalPlan


@dataclass(frozen=True, slots=True)
class Executable:
    """Executable plan for the partitions of one worker.

    Attributes
    ----------
    key, encoded : bytes
        The plan's digest, and the plan as it is sent.
    origins : tuple of Origin
        Where each slot's value comes from.
    settled : tuple of (ArgumentRef, ArrayValue)
        Numbers that shaped the kernels; another value needs another plan.
    labels : tuple of str
        What errors call the steps that launch kernels.
    results : dict of int to PartitionSchema
        What the result looks like, by partition.
    kept : tuple of (dict of int to PartitionSchema)
        What is kept on the way, in the order of its slots.
    limit : int
        How many records of a partition are fetched; below 0 all.
    retains : bool
        Whether the worker goes on using what the records are sent in.
    to_device : bool
        Whether the records go to a device first, and are used from there alone.
    """

    key: bytes
    encoded: bytes
    origins: tuple[SlotOrigin, ...]
    settled: tuple[tuple[ArgumentRef, ArrayValue], ...]
    labels: tuple[str, ...]
    results: dict[int, PartitionSchema]
    kept: tuple[dict[int, PartitionSchema], ...]
    limit: int
    retains: bool = False
    to_device: bool = False

    def fits(self, nodes: LogicalPlan) -> bool:
        """Return whether the plan is valid for operations of the same shape."""
        return all(value_of(nodes, origin) == value for origin, value in self.settled)

    def values(self, nodes: LogicalPlan) -> BoundArguments:
        """Return the values of one pass."""
        return BoundArguments(tuple([origin if isinstance(origin, ArrayValue) else value_of(nodes, origin)
                                     for origin in self.origins]))

    def records(self, output: Output, data: Data, keyring: Keyring) -> Iterator[Any]:
        """Return the records of a fetched partition."""
        content, keys, blocks = self._content(output, data)
        return content.records(keys, blocks, keyring)

    def columns(self, output: Output, data: Data, keyring: Keyring) -> FetchedPartition:
        """Return the arrays of a fetched partition."""
        content, keys, blocks = self._content(output, data)
        return content.columns(keys, blocks, keyring)

    def _content(self, output: Output, data: Data) -> tuple[PartitionSchema, np.ndarray, list[dict[str, np.ndarray]]]:
        content = self.results[output.partition].first(self.limit)
        offset = output.offset
        keys = data.view(offset, output.keys) if output.keys else np.empty(0, np.uint8)
        offset += aligned(output.keys)
        blocks = []
        for signature in content.signatures:
            blocks.append({described.name: data.field(described, start)
                           for described, start in field_offsets(signature, offset)})
            offset += block_bytes(signature)
        return content, keys, blocks


def value_of(nodes: LogicalPlan, origin: ArgumentRef) -> ArrayValue:
    """Return an argument or a capture of the call at a position of a chain."""
    return nodes[origin.position].op.value(origin)


@dataclass(frozen=True, slots=True)
class Invocation:
    """Pass of a plan for one worker: the VRDDs in its slots, its values, whether to profile it, its world, the snapshot
    to take after it, if other workers run it too, the epoch of the process that it is for, and, if nobody waits for it
    and answers are noted, the user's line.
    """

    prepared: Executable
    vrdds: tuple[int, ...]
    values: BoundArguments
    profile: bool = False
    world: World | None = None
    save: Save | None = None
    epoch: int = 0
    line: str = ""

    def check(self, epoch: int) -> None:
        """Check that a process of this epoch may run the invocation.

        Raises
        ------
        WorldLost
            If other workers run it too, and this process is in no world with them.
        """
        if self.world is not None and epoch != self.epoch:
            raise WorldLost(f"the plan is for the worker's process of epoch {self.epoch}, and {epoch} is there")

    @property
    def partitions(self) -> Sequence[int]:
        """The partitions of the plan."""
        return tuple(self.prepared.results)

    def inline_bytes(self, results: int) -> int:
        """Return the bytes of the values that travel in a request itself, which has a payload beside it where there are
        ``results``.
        """
        return self.values.inline_bytes(is_beside=results > 0)

    def request(self, number: int, epoch: int, seconds: float, *, known: bool, offset: int = 0,
                released: tuple[int, ...] = (), results: int = 0, pieces: bool = False,
                memory: Callable[[int], int] | None = None) -> tuple[Run, int]:
        """Return the request, and the bytes that its values, and ``results`` behind them, need in the payload from
        ``offset``
        on.

        A worker that knows the plan is sent its digest alone. What was ``released`` goes along. The plan of a world is
        for the process that it was made for, whichever is there: another one refuses it. ``pieces`` says that the
        blocks that it starts from came before it. ``memory`` finds memory for so many bytes, and gives its number.
        """
        constants, size = self.values.constants(offset, self.inline_bytes(results))
        prepared, place = self.prepared, aligned(offset + size) if results else -1
        made_for = epoch if self.world is None else self.epoch
        nbytes = place + results - offset if results else size
        request = Run(number, made_for, seconds, prepared.key, b"" if known else prepared.encoded, self.vrdds,
                      constants, self.world, released, self.profile, self.save, place, pieces,
                      memory(nbytes) if memory and nbytes else 0)
        return request, nbytes
