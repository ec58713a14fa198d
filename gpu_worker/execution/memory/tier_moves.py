"""Moves of whole partitions between devices and the tiers below, where a plan needs room or content was released.

Nothing moves by use. What makes room is the last partition on the device of what was kept last: a pass goes over it
last, so that those before it are still there, and its copy goes beside their kernels.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from gpu_worker.device.base import Device
from gpu_worker.device.memory.partition import Partition
from gpu_worker.device.memory.registry import Registry
from gpu_worker.device.memory.tiers import PLACES
from gpu_worker.execution.memory.tier_copies import copied_below, copied_to_device
from gpu_worker.execution.scheduling.streams import StreamPool
from gpu_worker.protocol.errors import OutOfMemory, SpillError

log = logging.getLogger(__name__)

#: How often a partition that a plan needed the room of comes back: a loop that caches and releases in each pass would
#: move it for ever.
_RETURNS = 2


class TierMoves:
    """Moves of a session's partitions between tiers.

    Parameters
    ----------
    names : Registry
        The session's names.
    pool : StreamPool
        Its devices and streams.
    """

    def __init__(self, names: Registry, pool: StreamPool):
        self._names, self._pool = names, pool
        #: How often each partition made room, by the numbers of VRDD and partition.
        self._demotions: dict[tuple[int, int], int] = {}
        #: Whether content below devices may have room there, since other content was released.
        self.may_promote = False

    def released(self, vrdds: Iterable[int]) -> None:
        """Note that VRDDs were released, so that content below devices may have room there now."""
        gone = set(vrdds)
        self._demotions = {key: count for key, count in self._demotions.items() if key[0] not in gone}
        self.may_promote = self._names.tiers.is_used and any(
            each.tier in PLACES and self._below(each)
            for vrdd in self._vrdds() for each in self._names.held(vrdd))

    def demote(self, most: int) -> int:
        """Move up to ``most`` partitions from each device that is used to host memory or files, the last ones first;
        return how many moved. Nothing is lost where these have no room.
        """
        moved = 0
        for device in self._pool.devices:
            for vrdd, partition in self._resident(device)[:most]:
                if not self._move(vrdd, partition, device):
                    break
                self._demotions[vrdd, partition] = self._demotions.get((vrdd, partition), 0) + 1
                moved += 1
        return moved

    def _resident(self, device: Device) -> list[tuple[int, int]]:
        """Return the numbers of what is on a device and may be below it: what was kept last first, and of that the last
        partition.
        """
        return [(vrdd, content.index) for vrdd in reversed(self._vrdds())
                for content in reversed(self._names.held(vrdd))
                if content.tier in PLACES and content.device is device and content.place == device.name]

    def _move(self, vrdd: int, partition: int, device: Device) -> bool:
        value = self._names.lookup(vrdd, partition)
        stream = self._pool.take(device)
        try:
            below = copied_below(self._names.tiers, value, value.tier, stream)
        except (OutOfMemory, SpillError) as error:
            log.info("partition %d of VRDD %d stays on %s: %s", partition, vrdd, device.name, error.message)
            return False
        finally:
            self._pool.give(device, stream)
            value.close()
        log.info("partition %d of VRDD %d makes room on %s", partition, vrdd, device.name)
        return self._names.exchange(vrdd, below)

    def promote(self) -> int:
        """Move partitions to their devices, the first ones first, as far as these have room since content was released;
        return how many moved.
        """
        self.may_promote = False
        moved = 0
        for vrdd in self._vrdds():
            for content in self._names.held(vrdd):
                if content.tier in PLACES and self._below(content) and \
                        self._demotions.get((vrdd, content.index), 0) < _RETURNS:
                    moved += self._raised(vrdd, content.index)
        return moved

    def _vrdds(self) -> list[int]:
        """Return the numbers of the VRDDs that something is held of, in the order in which they were recorded."""
        return sorted(line.vrdd for line in self._names.report()[0])

    @staticmethod
    def _below(content: Partition) -> bool:
        return any(array.buffer is None for array in content.arrays)

    def _raised(self, vrdd: int, partition: int) -> bool:
        value, tiers = self._names.lookup(vrdd, partition), self._names.tiers
        nbytes = sum(array.nbytes for array in value.arrays)
        stream = self._pool.take(value.device)
        try:
            with tiers.placing:
                return tiers.fits_on(value.device, nbytes, nbytes) and \
                    self._names.exchange(vrdd, copied_to_device(value, stream))
        except OutOfMemory:
            return False
        finally:
            self._pool.give(value.device, stream)
            value.close()
