"""Devices: where blocks live and kernels run. One file per kind; :func:`open_devices` is the only way in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpu_worker.device.base import Device
from gpu_worker.device.cuda.device import open_cuda
from gpu_worker.device.host.device import open_host
from gpu_worker.device.null import NullDevice
from gpu_worker.protocol.errors import DeviceUnavailable


def _open_cuda(*, memory: int, addresses: Sequence[str], cache_dir: str, room: int, bounds: bool) -> list[Device]:
    if bounds:
        raise DeviceUnavailable("spark.vispark.check=bounds is for the host device: take spark.vispark.device=host, or"
                                " NVIDIA's compute-sanitizer on a GPU")
    return list(open_cuda(memory=memory, addresses=addresses, cache_dir=cache_dir, room=room))


def _open_null(*, memory: int, addresses: Sequence[str], cache_dir: str, room: int, bounds: bool) -> list[Device]:
    return [NullDevice(f"null:{address}", memory=memory, room=room) for address in addresses or ["0"]]


def _open_auto(*, memory: int, addresses: Sequence[str], cache_dir: str, room: int, bounds: bool) -> list[Device]:
    try:
        return _open_cuda(memory=memory, addresses=addresses, cache_dir=cache_dir, room=room, bounds=bounds)
    except DeviceUnavailable:
        return list(open_host(memory=memory, addresses=addresses, cache_dir=cache_dir, room=room, bounds=bounds))


_KINDS: dict[str, Callable[..., Sequence[Device]]] = {
    "auto": _open_auto,
    "cuda": _open_cuda,
    "host": open_host,
    "null": _open_null,
}


def open_devices(kind: str, *, memory: int = 0, addresses: Sequence[str] = (), cache_dir: str = "",
                 room: int = 0, bounds: bool = False) -> list[Device]:
    """Open the devices of this node.

    Parameters
    ----------
    kind : str
        "cuda", "host", "null", or "auto": cuda where there is one, else host.
    memory : int
        The most that each device may hold, in bytes; 0 for no limit of ours.
    addresses : sequence of str
        The GPUs that may be used, as Spark names them; empty for all. A host has one device, whatever is given.
    cache_dir : str
        Where compiled kernels are kept; empty for the user's cache directory.
    room : int
        The most shared memory that thread blocks may have, in bytes; 0 for what there is.
    bounds : bool
        Whether kernels' accesses to memory are checked; only a host does that, and "auto" is the host then.

    Raises
    ------
    DeviceUnavailable
        If that kind is unknown or cannot be had here; the message says why.

    Examples
    --------
    >>> [device.name for device in open_devices("null")]
    ['null:0']
    """
    if kind not in _KINDS:
        raise DeviceUnavailable(f"no device is called {kind!r}; the known ones are {', '.join(sorted(_KINDS))}")
    return list(_KINDS[kind](memory=memory, addresses=addresses, cache_dir=cache_dir, room=room, bounds=bounds))
