"""Exchanges with other nodes: cells are packed on their device, and moved by the session's world.

A world that reaches a device's memory moves them from there to there; for another one they are copied to host memory
before, and from it behind.

Both sides work out the same pieces in the same order from the boxes of both, so a message carries cells alone. There is
one for each device that gives and each that takes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gpu_worker.device.base import Device
from gpu_worker.device.memory.grid.ghosts import Copied
from gpu_worker.device.memory.grid.layout import Copy, packed
from gpu_worker.device.memory.grid.patches import Cells, Domain
from gpu_worker.exchange.base import JoinedWorld, MessageMemory, MessageSpec
from gpu_worker.execution.grid.context import GridContext, Operation
from gpu_worker.execution.grid.continued import Continued

#: Tags of messages between two ranks: which device gives, and which takes.
_DEVICES = 256


@dataclass
class Message:
    """Cells that one device here sends to, or receives from, a device of another rank."""

    device: Device
    peer: int
    tag: int
    copies: list[Callable[[int], Copy]] = field(default_factory=list)
    nbytes: int = 0

    @property
    def part(self) -> MessageSpec:
        """The message as the world knows it."""
        return MessageSpec(self.device, self.peer, self.tag, self.nbytes)

    def add(self, make: Callable[[int], Copy], nbytes: int) -> None:
        """Append a box to the message; ``make`` returns the copy of the box, given the address of its packed cells."""
        start = self.nbytes
        self.copies.append(lambda base: make(base + start))
        self.nbytes += -(-nbytes // 16) * 16


@dataclass
class NodeExchange:
    """Operations of an exchange with other nodes, as :class:`~gpu_worker.execution.grid.exchange.Exchange` has them."""

    beside: list[Operation] = field(default_factory=list)
    after: list[Operation] = field(default_factory=list)
    settled: list[Operation] = field(default_factory=list)
    pieces: list[Copied] = field(default_factory=list)
    #: On whose streams beside the ghost cells come.
    takers: list[Device] = field(default_factory=list)


def exchange_with_nodes(domain: Domain, content: Mapping[str, Cells], halos: Sequence[Continued], context: GridContext,
                      world: JoinedWorld
                      ) -> NodeExchange:
    """Return the operations that exchange ghost cells with the other ranks of a world."""
    result = NodeExchange()
    sends: dict[tuple[int, int], Message] = {}
    receives: dict[tuple[int, int], Message] = {}
    for peer in range(world.size):
        if peer == world.rank:
            continue
        for halo in halos:
            cells, widths = content[halo.field], (halo.below, halo.above, halo.rules)
            for piece in domain.sent(peer, *widths):
                if isinstance(piece, Copied):
                    giver, taker = domain.device_numbers[piece.source], domain.other_devices[peer][piece.target]
                    message = sends.setdefault((peer, giver * _DEVICES + taker), Message(
                        domain.patches[piece.source].device, peer, giver * _DEVICES + taker))
                    message.add(partial(_pack, domain, cells, piece), piece.to.size * cells.dtype.itemsize)
            for piece in domain.received(peer, *widths):
                if isinstance(piece, Copied):
                    giver, taker = domain.other_devices[peer][piece.source], domain.device_numbers[piece.target]
                    message = receives.setdefault((peer, giver * _DEVICES + taker), Message(
                        domain.patches[piece.target].device, peer, giver * _DEVICES + taker))
                    message.add(partial(_unpack, domain, cells, piece), piece.to.size * cells.dtype.itemsize)
                    result.pieces.append(piece)
    if sends or receives:
        _operations(list(sends.values()), list(receives.values()), context, world, result)
    return result


def _operations(sends: Sequence[Message], receives: Sequence[Message], context: GridContext, world: JoinedWorld,
                result: NodeExchange) -> None:
    staged = world.stage([message.part for message in sends], [message.part for message in receives])
    devices = list(dict.fromkeys(message.device for message in (*sends, *receives)))
    result.beside += [partial(device.wait, context.stream(device), stream=context.copy_stream(device), of=device)
                      for device in devices]
    for message, location in zip(sends, staged.sends, strict=True):
        result.beside += _sending(message, location, context)
    under_way: list[Future[Any]] = []
    streams = {device: context.copy_stream(device) for device in devices}

    def ready() -> None:
        # The streams of then: a pass that is done again has no context. Takers' too, which may still read what came.
        for device, stream in streams.items():
            device.synchronize(stream=stream)

    result.beside.append(context.act(lambda: under_way.append(world.start(staged, ready)), devices[0]))
    result.after.append(context.act(lambda: world.result(under_way.pop()), devices[0]))
    arrived: dict[Device, list[Copy]] = defaultdict(list)
    for message, location in zip(receives, staged.receives, strict=True):
        buffer = location.buffer or context.held(message.nbytes, message.device)
        if location.host is not None:
            result.after.append(partial(message.device.copy_in, buffer, location.host,
                                        stream=context.copy_stream(message.device)))
        arrived[message.device] += [copy(buffer.address) for copy in message.copies]
    for device, copies in arrived.items():
        result.after += context.copying(device, copies, context.copy_stream(device))
        result.takers.append(device)
    result.settled += [partial(device.wait, stream, stream=context.stream(device), of=device)
                       for device, stream in streams.items() if any(message.device is device for message in sends)]


def _sending(message: Message, location: MessageMemory, context: GridContext) -> list[Operation]:
    """Return the operations that bring a message to where it leaves from."""
    stream = context.copy_stream(message.device)
    buffer = location.buffer or context.held(message.nbytes, message.device)
    operations = context.copying(message.device, [copy(buffer.address) for copy in message.copies], stream)
    if location.host is not None:
        operations.append(partial(message.device.copy_out, location.host, buffer, stream=stream))
    return operations


def _pack(domain: Domain, cells: Cells, piece: Copied, address: int) -> Copy:
    layout = domain.patches[piece.source].layout
    strides = tuple(stride * step for stride, step in zip(layout.strides, piece.steps, strict=True))
    return Copy(cells.address(piece.source, layout, piece.start), address, strides, packed(piece.to.shape),
                piece.to.shape, cells.dtype.itemsize)


def _unpack(domain: Domain, cells: Cells, piece: Copied, address: int) -> Copy:
    layout = domain.patches[piece.target].layout
    return Copy(address, cells.address(piece.target, layout, piece.to.low), packed(piece.to.shape), layout.strides,
                piece.to.shape, cells.dtype.itemsize)
