"""Devices are opened by the table of kinds; a new one is a file and an entry."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from gpu_worker.device import open_devices
from gpu_worker.device.base import Source
from gpu_worker.execution.scheduling.streams import StreamPool
from gpu_worker.protocol import device_kinds
from gpu_worker.protocol.errors import DeviceUnavailable
from tests.device.bench import DeviceBench
from tests.device.toy import TOY
from vispark.errors import OptionError
from vispark.options import Options


@pytest.fixture
def toy() -> Iterator[device_kinds.DeviceKind]:
    """Yield the toy device, registered during a test."""
    yield device_kinds.register(TOY)
    device_kinds.unregister(TOY.name)


def _device_option(text: str) -> str:
    return Options.read([("spark.vispark.device", text)]).device


def test_a_device_is_one_entry(toy):
    assert _device_option("toy:2") == "toy:2"
    first, second = open_devices("toy:2")
    assert [first.name, second.name] == ["toy:0", "toy:1"]
    bench = DeviceBench(first, first.stream())
    numbers = bench.put(np.arange(6, dtype="i4"))
    source = Source("def double(block, x, rows):\n    x.view('i4')[block[0] * rows:][:rows] *= 2\n", "double.py")
    first.launch(first.compile(source, "double"), (2,), (1,), [numbers, np.int32(3)], stream=bench.stream)
    assert bench.get(numbers, 6, "i4").tolist() == [0, 2, 4, 6, 8, 10]
    other = second.allocate(24, stream=second.stream())
    second.copy_across(other, numbers, stream=bench.stream)
    assert DeviceBench(second, second.stream()).get(other, 6, "i4").tolist() == [0, 2, 4, 6, 8, 10]


def test_what_is_not_registered_is_no_option():
    with pytest.raises(OptionError, match="the known ones are auto, cuda, host, null"):
        _device_option("toy")
    with pytest.raises(DeviceUnavailable, match="the known ones are auto, cuda, host, null"):
        open_devices("toy")


@pytest.mark.parametrize("text", ["null:0", "null:", "null:two", "null:-1", "null:\u0663", "cuda:2", "auto:2"])
def test_a_number_is_for_kinds_that_can_be_counted(text: str):
    with pytest.raises(OptionError, match=r"how many|a number goes with host, null only"):
        _device_option(text)


def test_several_devices_of_one_machine_are_opened(cache_dir: str):
    assert [device.name for device in open_devices("null:3")] == ["null:0", "null:1", "null:2"]
    assert [device.name for device in open_devices("host:2", cache_dir=cache_dir)] == ["host:0", "host:1"]


def test_auto_is_by_preference_and_by_capability(toy, monkeypatch: pytest.MonkeyPatch, cache_dir: str):
    assert [kind.name for kind in device_kinds.automatic()] == ["cuda", "host"]
    device_kinds.register(device_kinds.DeviceKind("toy", TOY.opener, "", preference=3, is_countable=True))
    assert open_devices("auto")[0].kind == "toy"
    assert open_devices("auto", cache_dir=cache_dir, bounds=True)[0].kind == "host"
    with pytest.raises(DeviceUnavailable, match=r"check=bounds is for the host device: take .*host$"):
        open_devices("toy", bounds=True)


@pytest.mark.parametrize("kind", ["host", "null"])
def test_counted_devices_obey_addresses(kind: str, cache_dir: str):
    assert [device.name for device in open_devices(f"{kind}:4", addresses=["3", "1"], cache_dir=cache_dir)] == [
        f"{kind}:3", f"{kind}:1"]
    for address in ("4", "-1", "GPU-1", "\u0661", ""):
        with pytest.raises(DeviceUnavailable, match=f"'{address}', but .* {kind}:4 have the addresses 0 to 3"):
            open_devices(f"{kind}:4", addresses=[address], cache_dir=cache_dir)


def test_auto_goes_to_no_other_kind_where_an_address_is_unknown(toy):
    device_kinds.register(device_kinds.DeviceKind("toy", "tests.device.test_registry:_opened_nowhere", "",
                                                  preference=3))
    with pytest.raises(DeviceUnavailable, match="no toy at 'x'") as caught:
        open_devices("auto", addresses=["x"])
    assert type(caught.value) is DeviceUnavailable


def _opened_nowhere(*, addresses: list[str], **_: object) -> None:
    raise device_kinds.AddressUnknown(f"no toy at {addresses[0]!r}")


def test_addresses_of_gpus_mean_nothing_to_other_devices():
    devices = open_devices("null:2")
    assert StreamPool(devices).devices_at(["7"]) == tuple(devices)
