"""Storage levels of content on GPUs, as ``persist`` takes them, and the places that they spill to."""

from __future__ import annotations

from gpu_worker.protocol.messages import DISK_TIERS, TIERS
from vispark.errors import PlanError

#: Level: the place for what devices have no room for; "" where that is an error.
LEVELS = {"GPU": "", "GPU_AND_HOST": TIERS, "GPU_HOST_AND_DISK": DISK_TIERS}


def spills_of(level: str) -> str:
    """Return the place to which a storage level spills, by the name that :class:`~gpu_worker.protocol.plans.KeepStep`
    takes; "" for none.

    Raises
    ------
    PlanError
        If there is no such level.

    Examples
    --------
    >>> spills_of("GPU_AND_HOST")
    'tiers'
    >>> spills_of("GPU_AND_DISK")   # doctest: +ELLIPSIS
    Traceback (most recent call last):
    gpu_worker.protocol.errors.PlanError: there is no storage level 'GPU_AND_DISK'; there are "GPU", ...
    """
    if level not in LEVELS:
        named = ", ".join(f'"{each}"' for each in LEVELS)
        raise PlanError(f"there is no storage level {level!r}; there are {named}, and pyspark.StorageLevel's")
    return LEVELS[level]
