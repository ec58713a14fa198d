"""Processes of this machine that belong to a cluster: its id is in the environment that they and theirs inherit."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

#: Variables of each process of a cluster.
ID, NAME, PLACE = "VISPARK_CLUSTER_ID", "VISPARK_CLUSTER_NAME", "VISPARK_CLUSTER_PLACE"

_PROC = Path("/proc")


def tagged() -> dict[int, dict[str, str]]:
    """Return this user's processes that belong to clusters: of each number, its environment.

    Examples
    --------
    >>> isinstance(tagged(), dict)
    True
    """
    environments = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            environment = _environment(folder)
            if environment.get(ID):
                environments[int(folder.name)] = environment
    return environments


def of_cluster(identity: str) -> list[int]:
    """Return the numbers of the processes of a cluster, without this one."""
    return [number for number, environment in tagged().items()
            if environment[ID] == identity and number != os.getpid()]


def end(identity: str, patience: float = 15.0) -> list[int]:
    """End the processes of a cluster, politely at first; return those that are still there.

    Parameters
    ----------
    identity : str
        The cluster's id; what runs a program that was submitted is none of its processes.
    patience : float
        Seconds until they are killed.
    """
    _signal(of_cluster(identity), signal.SIGTERM)
    deadline = time.monotonic() + patience
    while (left := of_cluster(identity)) and time.monotonic() < deadline:
        time.sleep(0.1)
    _signal(left, signal.SIGKILL)
    deadline = time.monotonic() + 5.0
    while (left := of_cluster(identity)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _environment(folder: Path) -> dict[str, str]:
    """Return a process's environment; empty of one that has ended, or is another user's."""
    try:
        if folder.stat().st_uid != os.getuid():
            return {}
        text = (folder / "environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def _signal(numbers: list[int], which: signal.Signals) -> None:
    for number in numbers:
        try:
            os.kill(number, which)
        except ProcessLookupError:
            continue
