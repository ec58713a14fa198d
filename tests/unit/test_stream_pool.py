"""Devices that Spark assigned: opened as executors come, and dealt to partitions."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from gpu_worker.device import open_devices
from gpu_worker.device.null import NullDevice
from gpu_worker.execution.scheduling.streams import StreamPool, Streams
from gpu_worker.protocol.errors import DeviceUnavailable
from gpu_worker.protocol.messages import (
    Describe,
    Field,
    Input,
    KeepStep,
    Plan,
    PutStep,
    Run,
    SessionOptions,
    Signature,
    ToDeviceStep,
    Variant,
)
from gpu_worker.protocol.payload import Payload
from gpu_worker.protocol.plans import sealed
from gpu_worker.server.handlers import SessionWorker
from gpu_worker.system.crash_record import CrashRecorder


def _pool(kind: str = "null:8") -> StreamPool:
    return StreamPool([], lambda addresses: open_devices(kind, addresses=addresses))


def _names(devices) -> list[str]:
    return [device.name for device in devices]


def test_what_is_assigned_is_opened_once():
    pool = _pool()
    pool.open(["2", "3"])
    first = pool.devices
    pool.open(["3", "5", "2"])
    assert pool.devices[:2] == first and _names(pool.devices) == ["null:2", "null:3", "null:5"]
    assert _names(pool.devices_at(["5", "2"])) == ["null:5", "null:2"]
    assert pool.devices_at([]) == pool.devices


def test_a_device_that_stands_for_all_addresses_is_one():
    opened: list[NullDevice] = []
    pool = StreamPool([], lambda _: opened.append(NullDevice("null:0")) or opened[-1:])
    pool.open(["7"]), pool.open(["GPU-1"])
    assert pool.devices == (opened[0],) and pool.devices_at(["7", "GPU-1"]) == [opened[0]] * 2
    assert [name for name, in opened[1].calls] == ["close"]
    assert pool.unassigned({"GPU-1"}) == [] and pool.unassigned(set()) == [opened[0]]


def test_what_is_not_open_is_an_error_that_names_it():
    pool = _pool()
    with pytest.raises(DeviceUnavailable, match=r"assigned no GPU to this executor.*resource profile.*device=host"):
        pool.devices_at([])
    pool.open(["1"])
    with pytest.raises(DeviceUnavailable, match="the GPU '2' is not open"):
        pool.devices_at(["1", "2"])
    with pytest.raises(DeviceUnavailable, match="the GPUs '9', 'GPU-4', but the devices of null:8"):
        pool.open(["4", "9", "GPU-4"])
    assert _names(pool.devices) == ["null:1"]


def test_a_substitute_stands_in_until_the_process_ends():
    pool = StreamPool([], lambda addresses: open_devices("null:8", addresses=addresses), lambda: open_devices("null"))
    assert pool.devices == () and pool.unassigned(set()) == []
    substitute, = pool.devices_at([])
    assert pool.unassigned(set()) == [] and pool.place(1, 0, []) is substitute
    pool.open(["3", "99"])      # what is assigned now is opened by the next process
    assert pool.devices == (substitute,) and pool.devices_at(["3"]) == [substitute]
    assert pool.unassigned({"3", "99"}) == [substitute]


def test_a_substitute_is_not_needed_where_another_executor_has_a_gpu():
    pool = StreamPool([], lambda addresses: open_devices("null:8", addresses=addresses), lambda: pytest.fail("opened"))
    pool.open(["5"])
    assert _names(pool.devices_at([])) == ["null:5"]


def test_partitions_go_where_the_fewest_of_their_vrdd_are():
    pool, numbers = _pool(), random.Random(5)
    pool.open(["0", "1", "2"])
    for vrdd in (1, 2):
        for partitions in (numbers.sample(range(100), 7), range(0, 200, 3)):
            for partition in partitions:
                device = pool.place(vrdd, partition, ["1", "2", "0"])
                assert pool.place(vrdd, partition, ["0", "1", "2"]) is device
        counts = [0, 0, 0]
        for device in pool._placements._devices[vrdd].values():
            counts[int(device.name[-1])] += 1
        assert max(counts) - min(counts) <= 1
    pool.forget([1])
    assert list(pool._placements._devices) == [2]


def test_a_partition_that_comes_to_another_executor_goes_to_its_devices():
    pool = _pool()
    pool.open(["0", "1"])
    assert pool.place(1, 0, ["0"]).name == "null:0"
    assert pool.place(1, 0, ["1"]).name == "null:1"
    assert pool.place(1, 1, ["0", "1"]).name == "null:0"


def test_without_an_opener_partitions_are_dealt_by_number():
    pool = StreamPool(open_devices("null:2"))
    pool.open(["7"])
    assert _names(pool.place(1, partition, []) for partition in range(4)) == ["null:0", "null:1"] * 2
    assert pool.unassigned(set()) == []


def test_a_stream_belongs_to_one_plan_at_a_time():
    """Keep the stream for one plan, as the arguments of its launches lie in memory of the stream."""
    device, = open_devices("null")
    pool = StreamPool([device])
    with ThreadPoolExecutor(4) as threads:
        taken = list(threads.map(lambda _: pool.take(device), range(64)))
    assert len(set(map(id, taken))) == 64
    plans = [Streams(pool), Streams(pool)]
    assert plans[0].main(device) is not plans[1].main(device)
    pool.give(device, taken[0])
    assert pool.take(device) is taken[0] and pool.take(device) not in taken


def test_a_worker_without_devices_answers_what_needs_none(tmp_path):
    options = SessionOptions("null:2", 0, 30.0, "", "info", scheduled=True)
    box = CrashRecorder(tmp_path / "box", epoch=1)
    worker = SessionWorker(options, epoch=1, recorder=box)
    assert (worker.devices, worker.shared_limit, worker.report().memory) == ((), 0, ())
    assert worker.handle(Describe(1, 1, ()), [])[0].held == ()
    steps = PutStep(), ToDeviceStep(), KeepStep(0, "x", "device")
    variant = Variant(Signature((Field("", "<f8", (1 << 20,)),)), (), (b"",), (-1,))
    key, encoded = sealed(Plan(steps, (), (variant,), (Input(0, 1 << 20, 0, 0, b"", (0,)),), ()))
    run = Run(2, 1, 10.0, key, encoded, (1,), ())
    with closing(worker.payloads()) as payloads:
        with Payload.create(8 << 20) as payload, pytest.raises(DeviceUnavailable, match="no GPU to this executor"):
            worker.handle(run, [payload.release()], payloads)
        worker.open(["1"])
        with Payload.create(8 << 20) as payload:
            worker.handle(run, [payload.release()], payloads)
    assert [line.device for line in worker.report().vrdds] == ["null:1"]
    worker.close()
    box.close()
