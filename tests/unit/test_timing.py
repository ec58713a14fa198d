"""A profiled plan's time: the devices' own, and beside it what the worker does."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.device.clock import UNTIMED, Clock
from gpu_worker.device.null import NullDevice
from gpu_worker.execution.scheduling.streams import StreamPool, Streams
from gpu_worker.protocol.messages import Times
from tests.unit.plans import bench
from tests.unit.test_recordings import ROWS, summing


def profiled(path: Path, device: str) -> Times:
    """Return the times of a plan with a copy in, two launches and a copy out."""
    with bench(path, device) as worker:
        worker.put(1, [[{"": ROWS}], [{"": ROWS[:9]}]])
        request = worker.request(summing(worker), (1,), [np.float32(1), np.ones(4, "f4"), np.float32(0)])
        reply, _ = worker.process.handle(replace(request, profile=True), [])
        assert all(stream.clock is UNTIMED for streams in worker.process._pool._idle.values() for stream in streams)
        return reply.times


def test_what_computes_nothing_spends_nothing_in_kernels(tmp_path: Path):
    times = profiled(tmp_path, "null")
    assert (times.copy_in, times.kernels, times.exchange, times.copy_out) == (0.0,) * 4
    assert times.scheduling == pytest.approx(times.total - times.compile) and times.scheduling > 0


def test_the_parts_add_up_to_the_whole(tmp_path: Path):
    times = profiled(tmp_path, "host")
    assert times.kernels > 0 and times.copy_out > 0 and times.scheduling > 0
    assert sum(getattr(times, each.name) for each in fields(Times) if each.name != "total") == pytest.approx(
        times.total)


class Known(Clock):
    """One that knows what it will have seen."""

    def __init__(self, spans: list[tuple[float, float]]):
        super().__init__()
        self._spans = spans


def test_of_several_devices_the_one_that_works_longest_counts(monkeypatch: pytest.MonkeyPatch):
    seen = {"null:0": [(0.0, 2.0), (1.0, 3.0)], "null:1": [(0.0, 1.0), (4.0, 7.0)], "null:2": [(9.0, 9.5)]}
    monkeypatch.setattr(NullDevice, "clock", lambda device: Known(seen[device.name]))
    streams = Streams(StreamPool([NullDevice(name) for name in seen]), timed=True)
    for device in streams.devices:
        assert streams.main(device).clock is streams.partition_stream(device, 1).clock is not UNTIMED
    assert streams.busy() == 4.0 and streams.busy() == 0.0
    streams.close()
