"""Blocks that Spark's Python workers keep in this module's global from one step to the next, each process its own.

Which process gets which partition changes from job to job, so that a process asks not for a partition's blocks but for
those that it took when it was first called. For that all processes must be called at each step, and no others.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.halos import Given, HaloStrips, exchanged
from benchmarks.recorder import Lap, LapRecorder

#: By the run's directory: the rank that this process took, and its blocks.
_own: dict[str, tuple[int, dict[Any, Any]]] = {}


def begin(directory: str, run: str, ranks: int, make: Callable[[int], dict[Any, Any]]) -> None:
    """Take a rank of a run, and make its blocks.

    Raises
    ------
    RuntimeError
        If all ranks are taken: more processes were called than there are ranks.
    """
    rank = next((rank for rank in range(ranks) if _took(Path(directory, f"{run}.{rank}.taken"))), None)
    if rank is None:
        raise RuntimeError(f"all {ranks} ranks are taken")
    _own.clear()
    _own[directory] = rank, make(rank)


def step(directory: str, halos: HaloStrips, stepped: Callable[[Any, Given, Lap], Any], recorder: LapRecorder) -> None:
    """Do a step of this process's blocks, with the strips that MPI brings."""
    rank, blocks = _of(directory)
    with recorder.recording() as lap:
        strips = exchanged(directory, rank, halos, blocks.items())
        lap("exchange")
        for position, block in blocks.items():
            blocks[position] = stepped(block, strips.get(position, {}), lap)


def held(directory: str) -> dict[Any, Any]:
    """Return the blocks of this process."""
    return _of(directory)[1]


def _of(directory: str) -> tuple[int, dict[Any, Any]]:
    if directory not in _own:
        raise RuntimeError("a Python worker of Spark's is new: what another one kept is lost")
    return _own[directory]


def _took(mark: Path) -> bool:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
