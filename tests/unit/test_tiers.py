"""Tiers of memory below devices: budgets, files, moves, and the n-th allocation refused."""

from __future__ import annotations

import errno
import gc
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.device.base import Device
from gpu_worker.device.memory.host_tier import HostTier
from gpu_worker.device.memory.spill_files import SpilledContent, SpillFiles, spilled
from gpu_worker.protocol.errors import KeysRefused, OutOfMemory, PlanError, SpillError
from gpu_worker.protocol.messages import FetchStep, FieldFold, FoldStep, KeepStep, LoadStep, ToDeviceStep
from gpu_worker.protocol.payload import aligned
from gpu_worker.protocol.plans import JoinByKeyStep, KeepKeyedStep, PartitionByKeyStep
from tests.unit.plans import Bench, bench

#: 12 partitions of 64 KiB; a device with room for 8 has three buffers free for one each, and so 5 of them.
KIB = 1 << 10
DEVICE = os.environ.get("VISPARK_TEST_DEVICE", "host")
NAME = f"{DEVICE}:0"
PARTITIONS = [[{"": np.random.default_rng(index).normal(size=(64, 128))}] for index in range(12)]
SMALL = {"memory": 8 * 64 * KIB + 4 * KIB, "stream": 64 * KIB}
SUM = ToDeviceStep(), FoldStep((FieldFold("", "add"),), "rows")


def sums(worker: Bench, vrdd: int = 1) -> bytes:
    return b"".join(each.tobytes() for each in worker.folded(worker.plan(vrdd, SUM, (), ""), (vrdd,)))


def places(worker: Bench, vrdd: int = 1) -> list[str]:
    return [content.place for content in worker.process._names.held(vrdd)]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    with bench(tmp_path_factory.mktemp("v"), DEVICE) as worker:
        worker.put(1, PARTITIONS)
        return sums(worker)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    directory = tmp_path / "files"
    directory.mkdir()
    return directory


@pytest.fixture
def small(tmp_path: Path, files: Path) -> Iterator[Bench]:
    """Start a worker whose device has room for a part, host memory for two more partitions, and a directory for files.
    """
    with bench(tmp_path, DEVICE, **SMALL, host_memory=128 * KIB, spill_dir=str(files)) as worker:
        yield worker


def test_host_memory_is_counted_while_it_is_seen():
    tier = HostTier(8 * KIB)
    view = tier.take(5000)[100:200]
    with pytest.raises(OutOfMemory, match=r"4,096 bytes do not fit, 5,000 of 8,192 .*spark.vispark.hostMemory"):
        tier.take(4096)
    assert tier.used == 5000
    del view
    assert not tier.used
    assert tier.take(8192).sum() == 0


def test_pinned_memory_is_unpinned_before_it_goes():
    seen: list[tuple[str, int]] = []
    tier = HostTier(64 << 20, lambda memory: seen.append(("pin", memory.ctypes.data)),
                    lambda memory: seen.append(("unpin", memory.ctypes.data + int(memory[0]))))
    memory = tier.take(8 << 20)
    address = memory.ctypes.data
    del memory
    gc.collect()
    assert seen == [("pin", address), ("unpin", address)]


def test_files_have_no_names_and_outlive_their_directory(files: Path):
    content = np.arange(100_000, dtype=np.uint8)
    copy = SpillFiles(str(files)).write(content)
    assert not list(files.iterdir()) and spilled(copy[3:]) is not None
    shutil.rmtree(files)
    assert (copy == content).all()


def test_a_budget_of_nothing_is_an_error_or_files(tmp_path: Path, files: Path):
    with bench(tmp_path, DEVICE, **SMALL, host_memory=1, spill_dir=str(files)) as worker:
        with pytest.raises(OutOfMemory, match=r"spark\.vispark\.hostMemory"):
            worker.put(1, PARTITIONS, "tiers")
        held = len(places(worker))
        worker.put(2, PARTITIONS, "tiers+disk")
        assert len(places(worker)) == held >= 1 and "disk" in places(worker, 2)


def test_all_tiers_give_the_bits_of_one(small: Bench, expected: bytes):
    small.put(1, PARTITIONS, "tiers+disk")
    tiers = places(small)
    assert tiers == [NAME] * 5 + ["host"] * 2 + ["disk"] * 5
    assert sums(small) == expected and sums(small) == expected
    assert [block[""].tobytes() for blocks in small.fetched(1) for block in blocks] == \
        [blocks[0][""].tobytes() for blocks in PARTITIONS]


#: Rows of both sides of joins, by their keys: many of one key on the right, on the left, on both, and of many keys.
SIDES = {
    "right": (np.repeat(np.arange(9), 3), np.repeat(np.arange(9), [1, 0, 6000, 2, 0, 3, 1, 1, 9])),
    "left": (np.repeat(np.arange(9), [1, 0, 6000, 2, 0, 3, 1, 1, 9]), np.repeat(np.arange(9), 3)),
    "both": (np.repeat([-0.0, 1.5, 2.5], [1, 300, 5]), np.repeat([0.0, 1.5, 9.5], [9, 400, 2])),
    "many": (np.arange(-9000, 9000, 2), np.arange(-9000, 9000, 3)),
    "none": (np.arange(0, 9000, 2), np.arange(1, 9000, 2)),
}


def joined(worker: Bench, keys: tuple[np.ndarray, np.ndarray], *, tuples: bool, place: str) -> dict[str, np.ndarray]:
    """Return the pairs of two sides, of which the rows of one are wide, by keys that are numbers or tuples."""
    names = ("0.0", "0.1") if tuples else ("0",)
    for vrdd, width in ((1, 3), (2, 1)):
        rows = keys[vrdd - 1]
        items = (rows // 2, rows % 2) if tuples else (rows,)
        values = np.random.default_rng(vrdd).normal(size=(len(rows), width))
        worker.put(vrdd, [[dict(zip(names, items, strict=True)) | {"1": values}]], place)
    step = JoinByKeyStep("join", 1, "0", (*names, "1"), ("1",), (*names, "1.0", "1.1"), b"pairs", b"none")
    worker.run(worker.plan(1, (step, KeepKeyedStep(2, "joined")), (), ""), (1, 2, 3))
    blocks, = worker.fetched(3)
    return blocks[0] if blocks else {}


@pytest.mark.parametrize("kind", SIDES)
def test_a_join_for_which_there_is_no_room_is_made_in_parts(tmp_path: Path, kind: str):
    """Both sides, or the pairs, are larger than the device; the pairs and their order are the same."""
    for tuples in (False, True):
        with bench(tmp_path, DEVICE) as worker:
            expected = joined(worker, SIDES[kind], tuples=tuples, place="device")
        for place, memory in (("tiers", 48), ("tiers", 160), ("tiers+disk", 48)):
            host = {"host_memory": 64 * KIB} if "disk" in place else {}
            with bench(tmp_path, DEVICE, memory=memory * KIB, stream=memory * KIB // 8, **host) as worker:
                pairs = joined(worker, SIDES[kind], tuples=tuples, place=place)
                assert list(pairs) == list(expected)
                assert all(pairs[name].tobytes() == expected[name].tobytes() for name in pairs)
                for vrdd in (1, 2, 3):
                    worker.process._names.release([vrdd])
                assert worker.process.report().memory[0].used == 0


def test_a_join_that_nothing_has_room_for_says_how_many_pairs_there_are(small: Bench, expected: bytes):
    keys = np.zeros(2000, np.int64), np.zeros(3000, np.int64)
    words = r"2,000 and 3,000 records have 6,000,000 pairs.*hostMemory.*do not fit.*recv\(\)"
    with pytest.raises(OutOfMemory, match=words):
        joined(small, keys, tuples=False, place="tiers")
    small.process._names.release([1, 2])
    small.put(4, PARTITIONS, "tiers+disk")
    assert sums(small, 4) == expected


@pytest.mark.parametrize(("number", "error", "match"), [
    (errno.ENOSPC, OutOfMemory, r"files.*ENOSPC.*spark\.vispark\.spillDir"),
    (errno.EIO, SpillError, r"spark\.vispark\.spillDir")])
def test_a_disk_that_is_full_or_fails_loses_nothing(small: Bench, files: Path, expected: bytes,
                                                    monkeypatch: pytest.MonkeyPatch, number: int,
                                                    error: type[Exception], match: str):
    small.put(1, PARTITIONS, "tiers+disk")
    written: list[int] = []
    really = os.pwrite

    def pwrite(descriptor: int, data: memoryview, offset: int) -> int:
        if not os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(files)):
            return really(descriptor, data, offset)
        written.append(offset)
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        with pytest.raises(error, match=match):
            small.put(2, PARTITIONS, "tiers+disk")
    assert written and sums(small) == expected
    small.put(2, PARTITIONS, "tiers+disk")
    assert sums(small, 2) == expected


def test_partitions_by_keys_are_kept_last(small: Bench):
    """Refuse a step behind it, as what is kept is no longer the plan's, so that the step has nothing to work on."""
    small.put(1, [[{"0": np.arange(8), "1": np.ones(8)}]])
    steps = ToDeviceStep(), PartitionByKeyStep("partitionBy", "0", 2, "hash", b"", b""), KeepKeyedStep(1, "y")
    with pytest.raises(PlanError, match="kept by a plan's last step"):
        small.run(small.plan(1, (*steps, FetchStep(-1, "")), (), ""), (1, 2))
    small.run(small.plan(1, steps, (), ""), (1, 2))


@pytest.mark.parametrize(("place", "count", "module"), [("device", 2, "steps.partitioning"),
                                                        ("tiers+disk", 40, "steps.wave_exchange")])
def test_more_rows_than_are_numbered_are_left_to_spark(small: Bench, monkeypatch: pytest.MonkeyPatch, place: str,
                                                       count: int, module: str):
    """Refuse 2**32 rows, of which nobody has the memory here: a few stand for them."""
    small.put(1, [[{"0": np.arange(2000) % 7, "1": np.ones(2000)}]] * count, place)
    steps = ToDeviceStep(), PartitionByKeyStep("partitionBy", "0", 2, "hash", b"", b""), KeepKeyedStep(1, "y")
    plan = small.plan(1, steps, (), "")
    with monkeypatch.context() as patch:
        patch.setattr(f"gpu_worker.execution.{module}.MOST_ROWS", 1999)
        with pytest.raises(KeysRefused, match=r"records, and 1,999 are the most"):
            small.run(plan, (1, 9))
    small.run(plan, (1, 9))


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, OutOfMemory), (errno.EIO, SpillError)])
def test_a_disk_that_fails_behind_rows_that_were_moved_is_told_of(small: Bench, monkeypatch: pytest.MonkeyPatch,
                                                                  number: int, error: type[Exception]):
    """They are stored bit by bit, and are not kept before they are on the disk."""
    pairs = [[{"0": np.arange(4096) % 7, "1": block[0][""].ravel()[:4096]}] for block in PARTITIONS]
    small.put(1, pairs, "tiers+disk")
    steps = ToDeviceStep(), PartitionByKeyStep("partitionBy", "0", 4, "hash", b"", b""), KeepKeyedStep(1, "y")
    plan = small.plan(1, steps, (), "")

    def fails(descriptor: int, *_: object) -> int:
        raise OSError(number, os.strerror(number))

    def on_that_disk(method: Callable[..., None]) -> Callable[..., None]:
        def called(content: SpilledContent, *arguments: np.ndarray) -> None:
            with monkeypatch.context() as inner:
                inner.setattr(os, "pwrite", fails)
                inner.setattr(os, "fdatasync", fails)
                method(content, *arguments)
        return called

    for name in ("store", "sync"):
        with monkeypatch.context() as patch:
            patch.setattr(SpilledContent, name, on_that_disk(getattr(SpilledContent, name)))
            with pytest.raises(error, match=r"bytes in .*files, for what finds .*spark\.vispark\.spillDir"):
                small.run(plan, (1, 9))
    small.run(plan, (1, 9))
    assert "disk" in places(small, 9)


def test_a_directory_that_vanishes_loses_nothing(small: Bench, files: Path, expected: bytes):
    small.put(1, PARTITIONS, "tiers+disk")
    shutil.rmtree(files)
    with pytest.raises(SpillError, match=r"files, for what finds no room in memory: .*No such file"):
        small.put(2, PARTITIONS, "tiers+disk")
    assert sums(small) == expected
    files.mkdir()
    small.put(2, PARTITIONS, "tiers+disk")
    assert sums(small, 2) == expected


def test_the_last_resident_partitions_make_room_and_come_back(small: Bench, expected: bytes):
    small.put(1, PARTITIONS, "tiers+disk")
    small.put(2, PARTITIONS[:5])
    assert places(small, 2) == [NAME] * 5
    resident = places(small).count(NAME)
    assert resident < 4 and places(small)[:resident] == [NAME] * resident
    assert sums(small) == expected
    small.process._forget((2,))
    assert sums(small) == expected
    assert places(small)[:5] == [NAME] * 5


def test_what_stays_on_devices_alone_is_an_error_where_nothing_can_make_room(small: Bench):
    small.put(2, PARTITIONS[:7])
    with pytest.raises(OutOfMemory, match=r'persist\("GPU_AND_HOST"\) keeps in host memory what does not fit'):
        small.put(3, PARTITIONS)
    assert places(small, 2) == [NAME] * 7


def test_a_partition_larger_than_the_device_is_an_error_that_names_smaller_ones(small: Bench):
    small.put(1, [[{"": np.zeros((64, 2000))}]], "host")
    with pytest.raises(OutOfMemory, match=r"streams a partition by rows, or whole .*more and smaller partitions do"):
        sums(small)
    assert places(small) == ["host"]


#: Partitions of four times the small device: of rows, which are whole chunks of a fold and the rest, and of blocks.
LARGE = {"rows": [{"": np.random.default_rng(1).normal(size=(32_005, 8)), "b": np.arange(32_005, dtype=np.int16)}],
         "blocks": [{"": block[0][""]} for block in [*PARTITIONS, *PARTITIONS, *PARTITIONS]]}


@pytest.mark.parametrize("kind", LARGE)
@pytest.mark.parametrize("place", ["host", "tiers+disk"])
def test_a_partition_larger_than_the_device_comes_in_pieces(small: Bench, kind: str, place: str):
    """It is fetched, whole or its first records, and kept below, as it was."""
    small.put(1, [LARGE[kind], LARGE[kind][:1]], place)
    over = "rows" if kind == "rows" else "blocks"
    for limit in (-1, 3):
        fetched = small.plan(1, (ToDeviceStep(), FetchStep(limit, over)), (), "")
        reply, data = small.run(fetched, (1,))
        blocks = LARGE[kind][:limit] if limit > 0 and kind == "blocks" else LARGE[kind]
        rows = limit if limit > 0 and kind == "rows" else None
        expected = [np.ascontiguousarray(array[:rows]).tobytes() for block in blocks for array in block.values()]
        offset = reply.outputs[0].offset
        for array in expected:
            assert data.view(offset, len(array)).tobytes() == array
            offset += aligned(len(array))
    small.run(small.plan(1, (ToDeviceStep(), KeepStep(1, "y", "tiers+disk")), (), "", outputs=1), (1, 9))
    assert places(small, 9)[0] == "disk"
    kept = small.fetched(9)[0]
    assert [{name: array.tobytes() for name, array in block.items()} for block in kept] == \
        [{name: array.tobytes() for name, array in block.items()} for block in LARGE[kind]]


def test_folds_of_pieces_have_the_bits_of_the_whole(small: Bench, tmp_path: Path):
    fold = ToDeviceStep(), FoldStep((FieldFold("", "add"), FieldFold("b", "maximum", "overflow")), "rows")
    (tmp_path / "large").mkdir()
    with bench(tmp_path / "large", DEVICE) as worker:
        worker.put(1, [LARGE["rows"]] * 2)
        expected = [each.tobytes() for each in worker.folded(worker.plan(1, fold, (), ""), (1,))]
    small.put(1, [LARGE["rows"]] * 2, "tiers+disk")
    assert [each.tobytes() for each in small.folded(small.plan(1, fold, (), ""), (1,))] == expected


def test_a_plan_in_waves_leaves_nothing_to_the_collector(small: Bench, expected: bytes):
    small.put(1, PARTITIONS, "host")
    gc.collect()
    gc.disable()
    try:
        before = _mapped()
        assert sums(small) == expected
        small.process._forget((1,))
        assert _mapped() == before - len(PARTITIONS)
    finally:
        gc.enable()


def _mapped() -> int:
    """Return the number of memfds that are mapped."""
    return Path("/proc/self/maps").read_text(encoding="utf-8").count("memfd:vispark")


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True], ids=["once", "from then on"])
def test_the_nth_allocation_refused_loses_nothing(small: Bench, expected: bytes, monkeypatch: pytest.MonkeyPatch,
                                                  persistent: bool):
    """Refuse an allocation of a device in every plan of a few, until none is left to refuse."""
    small.put(1, PARTITIONS, "tiers+disk")
    device = type(small.process._pool.devices[0])
    allocate = device.allocate
    kept = LoadStep(0), ToDeviceStep(), KeepStep(1, "y", "tiers+disk")
    plans = {
        "fold": lambda: sums(small) == expected,
        "keep": lambda: bool(small.run(small.plan(1, kept[1:], (), "", outputs=1), (1, 9))) and
                        sums_of(small, 9) == expected,
        "fetch": lambda: bool(small.run(small.plan(1, (ToDeviceStep(), FetchStep(1, "rows")), (), ""), (1,))),
        "put": lambda: small.put(9, PARTITIONS, "tiers+disk") is None and sums(small, 9) == expected,
    }
    for name, plan in plans.items():
        outcomes = []
        for refused in range(1, 200):
            left = [refused]

            def refusing(self: Device, nbytes: int, *, stream: object, left: list[int] = left) -> object:
                left[0] -= 1
                if left[0] == 0 or (persistent and left[0] < 0):
                    raise OutOfMemory(f"{nbytes} bytes refused")
                return allocate(self, nbytes, stream=stream)

            with monkeypatch.context() as patch:
                patch.setattr(device, "allocate", refusing)
                try:
                    outcomes.append(plan())
                except OutOfMemory:
                    outcomes.append(None)
            assert outcomes[-1] is not False, (name, refused)
            small.process._forget((9,))
            small.process._names._state._released = type(small.process._names._state._released)()
            assert sums(small) == expected, (name, refused)
            if left[0] > 0:
                break
        assert left[0] > 0 and len(outcomes) > 2, name


def sums_of(worker: Bench, vrdd: int) -> bytes:
    worker.describe(vrdd, PARTITIONS)
    return sums(worker, vrdd)
