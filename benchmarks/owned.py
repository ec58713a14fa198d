"""Blocks that Spark's Python workers keep in this module's global from one step to the next, each process its own.

Which process gets which partition changes from job to job, so that a process asks not for a partition's blocks but for
those that it took when it was first called. For that all processes must be called at each step, and no others.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.halos import Given, Halos, Position, exchanged

#: By the run's directory: the rank that this process took, and its blocks.
_own: dict[str, tuple[int, dict[Position, Any]]] = {}


def begin(directory: str, halos: Halos, ranks: int, start: Callable[[Position], Any]) -> None:
    """Take a rank, and make its blocks.

    Raises
    ------
    RuntimeError
        If all ranks are taken: a process was called that had not been before.
    """
    rank = next((rank for rank in range(ranks) if _took(Path(directory, f"{rank}.taken"))), None)
    if rank is None:
        raise RuntimeError("a Python worker of Spark's is new: what another one kept is lost")
    _own.clear()
    _own[directory] = rank, {position: start(position) for position in halos.owned(rank, ranks)}


def step(directory: str, halos: Halos, stepped: Callable[[Any, Given], Any]) -> None:
    """Do a step of this process's blocks, with the strips that MPI brings."""
    rank, blocks = _of(directory)
    given = exchanged(directory, rank, halos, blocks.items())
    for position, block in blocks.items():
        blocks[position] = stepped(block, given.get(position, {}))


def block(directory: str, position: Position) -> list[Any]:
    """A block, where this process has it."""
    _, blocks = _of(directory)
    return [blocks[position]] if position in blocks else []


def _of(directory: str) -> tuple[int, dict[Position, Any]]:
    if directory not in _own:
        raise RuntimeError("a Python worker of Spark's is new: what another one kept is lost")
    return _own[directory]


def _took(mark: Path) -> bool:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
