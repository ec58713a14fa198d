"""Devices: where blocks live and kernels run.

One file per kind, which :mod:`gpu_worker.protocol.device_kinds` names; :func:`open_devices` is the only way in.

Place 4 of 9 in the order of the data; run by: device process.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpu_worker.device.base import Device
from gpu_worker.protocol.device_kinds import AUTO, AddressUnknown, DeviceKind, automatic, kind_of, kinds, parse_spec
from gpu_worker.protocol.errors import DeviceUnavailable


def open_devices(kind: str, *, memory: int = 0, addresses: Sequence[str] = (), cache_dir: str = "",
                 shared_limit: int = 0, bounds: bool = False) -> list[Device]:
    """Open the devices of this node.

    Parameters
    ----------
    kind : str
        "cuda", "host", "null" or another registered kind; "auto": cuda where there is one, else host. Of host and null
        also how many, as in "host:4".
    memory : int
        The most that each device may hold, in bytes; 0 for no limit of ours.
    addresses : sequence of str
        The devices that may be used, as Spark names GPUs; empty for all. Those of "host:4" are 0 to 3; of "host" there
        is one device, whatever is given.
    cache_dir : str
        Where compiled kernels are kept; empty for the user's cache directory.
    shared_limit : int
        The most shared memory that thread blocks may have, in bytes; 0 for what there is.
    bounds : bool
        Whether kernels' accesses to memory are checked; only a host does that, and "auto" is the host then.

    Returns
    -------
    list of Device
        One for each of the addresses, in their order, and of two names of one device the same; or one, if it stands
        for all addresses.

    Raises
    ------
    DeviceUnavailable
        If that kind is unknown or cannot be had here, or some of the addresses name none; the message says why.

    Examples
    --------
    >>> [device.name for device in open_devices("null")]
    ['null:0']
    """
    spec = parse_spec(kind)
    kinds = [each for each in automatic() if each.checks_bounds or not bounds] if spec.kind == AUTO else \
        [kind_of(spec.kind)]
    for place, device_kind in enumerate(kinds, 1):
        try:
            return _opened(device_kind, count=spec.count, bounds=bounds, memory=memory, addresses=addresses,
                           cache_dir=cache_dir, shared_limit=shared_limit)
        except AddressUnknown as error:
            raise DeviceUnavailable(error.message) from error
        except DeviceUnavailable:
            if place == len(kinds):
                raise
    raise DeviceUnavailable(f"no kind of device is tried for {kind!r}" + (" that checks bounds" if bounds else ""))


def _opened(kind: DeviceKind, *, count: int, bounds: bool, **arguments: object) -> list[Device]:
    """Open a kind's devices with the arguments that its capabilities allow; refuse the others."""
    if bounds and not kind.checks_bounds:
        able = next((each.name for each in automatic() if each.checks_bounds), "")
        raise DeviceUnavailable(f"spark.vispark.check=bounds is for the {able} device: take spark.vispark.device={able}"
                                + (f", or {kind.checker}" if kind.checker else ""))
    if kind.checks_bounds:
        arguments["bounds"] = bounds
    if kind.is_countable:
        arguments["count"] = count
    return list(kind.load()(**arguments))


__all__ = ["Device", "kinds", "open_devices"]
