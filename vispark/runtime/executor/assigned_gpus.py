"""GPUs that Spark assigned: to an application's executors as the driver knows them, to this executor, to this task.

What a session may open on a node are its executors' addresses there. A task's own addresses are a permission to run,
and no place: Spark gives 0.5 of a GPU twice of the first one before it looks at the second. So the partitions of all
tasks of an executor are dealt to all of its addresses.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from vispark.errors import DeviceUnavailable

log = logging.getLogger(__name__)

#: Name of GPUs among Spark's resources.
GPU = "gpu"


@dataclass
class AssignedGpus:
    """Addresses of GPUs by executor, as the driver last saw them; shipped with tasks.

    Attributes
    ----------
    is_scheduled : bool
        Whether the application asks Spark for GPUs at all. Where it does, a session opens no others; where it does not,
        a session opens all that its processes see.
    by_executor : dict of str to (tuple of str)
        The addresses of each executor that is known; empty for one without GPUs.
    """

    is_scheduled: bool = False
    by_executor: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def own_addresses(self) -> tuple[str, ...]:
        """Return the addresses of the executor that this process serves, by names that hold for the whole machine.

        Its resources file has them on a standalone cluster; elsewhere the driver, or, where the executor is younger
        than the driver's view, the running task.

        Raises
        ------
        DeviceUnavailable
            If CUDA_VISIBLE_DEVICES hides one of them.
        """
        arguments = _executor_arguments()
        addresses = _file_addresses(arguments.get("--resourcesFile", ""))
        if addresses is None:
            addresses = self.by_executor.get(executor_id())
        if addresses is None:
            addresses = task_addresses()
        return on_machine(addresses, os.environ.get("CUDA_VISIBLE_DEVICES"))


def task_addresses() -> tuple[str, ...]:
    """Return the GPU addresses that Spark assigned to the running task."""
    context = TaskContext.get()
    gpus = context.resources().get(GPU) if context else None
    return tuple(gpus.addresses) if gpus else ()


def on_machine(addresses: Sequence[str], visible: str | None) -> tuple[str, ...]:
    """Return addresses as they are called in a process that sees all GPUs of the machine.

    An address is an entry of the executor's CUDA_VISIBLE_DEVICES, or counts its entries. The worker is not started by
    the executor, and has another CUDA_VISIBLE_DEVICES or none.

    Raises
    ------
    DeviceUnavailable
        If there is no such entry for some of the addresses; the message has them all.

    Examples
    --------
    >>> on_machine(["3"], "2,3"), on_machine(["0", "1"], "2,3"), on_machine(["0"], None)
    (('3',), ('2', '3'), ('0',))
    """
    if visible is None:
        return tuple(addresses)
    # To CUDA, the list ends before an entry below 0.
    listed = list(takewhile(lambda entry: not entry.startswith("-"),
                            (entry.strip() for entry in visible.split(",") if entry.strip())))
    # All of them are entries, or all of them are places: of the mask 1,2 the addresses 0 and 1 are the GPUs 1 and 2.
    names = max([_entry(address, listed) for address in addresses],
                [_at_place(address, listed) for address in addresses],
                key=lambda names: sum(map(bool, names)))
    hidden = [address for address, name in zip(addresses, names, strict=True) if not name]
    if hidden:
        gpus = f"the GPU{'s' if len(hidden) > 1 else ''} {', '.join(map(repr, hidden))}"
        raise DeviceUnavailable(f"Spark assigned {gpus} to this executor, whose CUDA_VISIBLE_DEVICES={visible} hides "
                                f"{'them' if len(hidden) > 1 else 'it'}: let the discovery script print what the "
                                "executors see (gpu-worker gpus --script), or unset the variable for them")
    return tuple(names)


def _entry(address: str, shown: Sequence[str]) -> str:
    """Return the entry of CUDA_VISIBLE_DEVICES that is an address; of UUIDs, either may have the beginning alone. Empty
    if there is none.

    Examples
    --------
    >>> _entry("GPU-5c3f-02", ["GPU-5c", "GPU-77"]), _entry("3", ["2", "3"]), _entry("GPU-8", ["GPU-5c"])
    ('GPU-5c', '3', '')
    """
    if address in shown or address.isdecimal():
        return address if address in shown else ""
    same = [entry for entry in shown if entry.lower().startswith(address.lower())
            or (address.lower().startswith(entry.lower()) and not entry.isdecimal())]
    return same[0] if len(same) == 1 else ""


def _at_place(address: str, shown: Sequence[str]) -> str:
    """Return the entry of CUDA_VISIBLE_DEVICES that an address counts; empty if there is none."""
    return shown[int(address)] if address.isdecimal() and int(address) < len(shown) else ""


def executor_process() -> int:
    """Return the process id of the executor that this Python worker serves: its parent, or the parent of PySpark's fork
    server.

    Also where that has ended, and this process, for a moment yet, is the child of one that adopts orphans: as long as
    that lived, so would the session, with the executor's GPUs.
    """
    return _executor_of(os.getpid())


@cache
def _executor_of(_: int) -> int:
    """Return the executor's process id, looked up once in each process, as a fork inherits what its parent knows."""
    parent = os.getppid()
    command = Path(f"/proc/{parent}/cmdline").read_bytes()
    if b"pyspark" in command and b"daemon" in command:
        return int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
    return parent


def executor_id() -> str:
    """Return Spark's name of the executor that this Python worker serves; "driver" in local mode."""
    return _executor_arguments().get("--executor-id", "driver")


@cache
def _executor_arguments() -> Mapping[str, str]:
    """Return the arguments of the executor's command line by name; none in local mode, where the driver is the one."""
    words = Path(f"/proc/{executor_process()}/cmdline").read_text(errors="replace").split("\0")
    if "--executor-id" not in words:
        return {}
    return {name: value for name, value in pairwise(words) if name.startswith("--")}


@cache
def _file_addresses(path: str) -> tuple[str, ...] | None:
    """Return the addresses in the resources file of an executor; None if there is none that can be read."""
    if not path:
        return None
    try:
        resources: list[dict[str, Any]] = json.loads(Path(path).read_text())
        return tuple(str(address) for each in resources if each["id"]["resourceName"] == GPU
                     for address in each["addresses"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        log.warning("the executor's resources file %s is not read: %s", path, error)
        return None
