"""Table of the kinds of devices: name, capabilities, and the function that opens them.

Drivers read it to check ``spark.vispark.device``, ``gpu-worker doctor`` to say what a machine has, and device processes
to open devices. The code of a kind is imported where one is opened, so that a driver loads neither NumPy nor CUDA for
it. Decisions between kinds ask for capabilities, never for names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from gpu_worker.protocol.errors import DeviceUnavailable
from gpu_worker.protocol.extras import install

#: Stands for the kind of the highest preference that can be had.
AUTO = "auto"


class AddressUnknown(DeviceUnavailable):
    """Error of an address that names no device of a kind that can be had here: no other kind has it either."""


@dataclass(frozen=True)
class DeviceKind:
    """Kind of devices, as it is known before one of them is opened.

    Attributes
    ----------
    name : str
        What ``spark.vispark.device`` calls it, and the first part of its devices' names.
    opener : str
        Module and function, as ``"package.module:function"``, that opens its devices. The function takes ``memory``,
        ``addresses``, ``cache_dir`` and ``shared_limit`` by keyword, as :func:`gpu_worker.device.open_devices` does,
        and ``bounds`` and ``count`` where the kind has these capabilities; it returns a non-empty sequence of
        :class:`gpu_worker.device.base.Device`, or raises DeviceUnavailable, which is AddressUnknown where it has
        devices, but none at an address.
    meaning : str
        What its blocks live in, for the table of options.
    preference : int
        Its place among the kinds that "auto" tries, the highest first; 0: never.
    checks_bounds : bool
        Whether it can check kernels' accesses to memory.
    is_countable : bool
        Whether a number of its devices can be asked for, as in ``"null:4"``.
    checker : str
        The program that checks accesses in place of a kind that cannot; or empty.
    title, mend : str
        What ``gpu-worker doctor`` calls it, and how one gets it; an empty title: it is not examined.
    is_required : bool
        Whether programs need it on every machine.
    """

    name: str
    opener: str
    meaning: str
    preference: int = 0
    checks_bounds: bool = False
    is_countable: bool = False
    checker: str = ""
    title: str = ""
    mend: str = ""
    is_required: bool = False

    def load(self) -> Callable[..., Any]:
        """Return the function that opens the devices; its module is imported now."""
        module, _, function = self.opener.partition(":")
        return getattr(import_module(module), function)


@dataclass(frozen=True)
class DeviceSpec:
    """Devices as ``spark.vispark.device`` names them: a kind or :data:`AUTO`, and how many; 0 for its own number."""

    kind: str
    count: int = 0


_KINDS: dict[str, DeviceKind] = {}


def register(kind: DeviceKind) -> DeviceKind:
    """Add a kind to the table of this process; one of its name is replaced.

    Examples
    --------
    >>> _ = register(DeviceKind("null", "gpu_worker.device.null:open_null", "nothing is kept; for tests",
    ...                         checks_bounds=True, is_countable=True))
    >>> names()
    ['auto', 'cuda', 'host', 'null']
    """
    _KINDS[kind.name] = kind
    return kind


def unregister(name: str) -> None:
    """Remove a kind from the table of this process."""
    del _KINDS[name]


def kinds() -> list[DeviceKind]:
    """Return all kinds, in the order in which they were registered."""
    return list(_KINDS.values())


def names() -> list[str]:
    """Return the names that devices can be asked for by, sorted."""
    return sorted([AUTO, *_KINDS])


def kind_of(name: str) -> DeviceKind:
    """Return the kind of a name.

    Raises
    ------
    DeviceUnavailable
        If there is none; the message has the names.
    """
    if name not in _KINDS:
        raise DeviceUnavailable(f"no device is called {name!r}; the known ones are {', '.join(names())}")
    return _KINDS[name]


def automatic() -> list[DeviceKind]:
    """Return the kinds that "auto" tries, in that order."""
    return sorted((kind for kind in kinds() if kind.preference), key=lambda kind: -kind.preference)


def parse_spec(text: str) -> DeviceSpec:
    """Read the text of ``spark.vispark.device``.

    Raises
    ------
    DeviceUnavailable
        If there is no such kind, or a number is asked of one that has none, or it is none above 0.

    Examples
    --------
    >>> parse_spec("null:4")
    DeviceSpec(kind='null', count=4)
    >>> parse_spec("auto")
    DeviceSpec(kind='auto', count=0)
    """
    name, colon, number = text.partition(":")
    if not colon:
        return DeviceSpec(name if name == AUTO else kind_of(name).name)
    if name == AUTO or not kind_of(name).is_countable:
        countable = ", ".join(kind.name for kind in kinds() if kind.is_countable)
        raise DeviceUnavailable(f"{name} has as many devices as the machine has; a number goes with {countable} only")
    if not (number.isascii() and number.isdecimal() and int(number)):
        raise DeviceUnavailable(f"{text!r} does not say how many; write {name}:4 for four")
    return DeviceSpec(name, int(number))


register(DeviceKind("cuda", "gpu_worker.device.cuda.device:open_cuda", "NVIDIA GPUs", preference=2, title="GPU device",
                    mend=f"where there is a GPU and its driver: {install('cuda')}",
                    checker="NVIDIA's compute-sanitizer on a GPU"))
register(DeviceKind("host", "gpu_worker.device.host.device:open_host", "the CPU", preference=1, checks_bounds=True,
                    is_countable=True, title="CPU device", mend="apt-get install g++, or name a C++ compiler by CXX",
                    is_required=True))
register(DeviceKind("null", "gpu_worker.device.null:open_null", "nothing is kept; for tests", checks_bounds=True,
                    is_countable=True))
