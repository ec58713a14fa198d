"""Stores: what is written is read, by ranges, whole or not at all, and what cannot be is said."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gpu_worker.protocol.errors import PlanError
from vispark.data.grid import npy
from vispark.data.storage import objects, systems
from vispark.data.storage.opening import Locations, located

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(params=["path", "file", "memory"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yield a directory of this machine, as a path and as a URL, and one of an fsspec file system."""
    memory = f"memory://storage{os.getpid()}"
    yield {"path": str(tmp_path), "file": f"file://{tmp_path}", "memory": memory}[request.param]
    systems.FileSystem(memory).remove(f"/storage{os.getpid()}")


def test_a_file_is_written_listed_and_read_by_ranges(directory: str):
    place = located(directory) / "deep" / "letters"
    assert not place.is_there() and located(f"{directory}/deep").names() == {}
    place.write([b"abc", memoryview(b"defgh")], 8)
    assert [bytes(piece) for piece in place.read([(0, 2), (3, 8)])] == [b"ab", b"defgh"]
    assert place.is_there() and place.content() == b"abcdefgh" and place.state().size == 8
    assert located(directory).names() == {"deep": False} and located(f"{directory}/deep").names() == {"letters": True}


def test_a_file_is_replaced_as_a_whole_or_stays(directory: str):
    place = located(directory) / "u"
    place.write([b"before"], 6)

    def broken() -> Iterator[bytes]:
        yield b"half"
        raise KeyError("the task was lost")

    for target in (place, located(directory) / "new" / "u"):
        with pytest.raises(KeyError):
            target.write(broken(), 8)
    assert place.content() == b"before" and located(directory).names().keys() <= {"u", "new"}
    assert located(f"{directory}/new").names() == {}
    for content, how in ((b"after!", "was written anew, with as many bytes"), (b"late", "had 6 bytes then and has 4")):
        state = place.state()
        place.write([content], len(content))
        assert place.content() == content
        with pytest.raises(PlanError, match=f"has changed since it was first looked at: it {how}"):
            place.check(state)


def test_what_cannot_be_read_is_said(directory: str):
    place = located(directory) / "u"
    with pytest.raises(PlanError, match=r"there is no file .*/u"):
        place.state()
    place.write([b"abc"], 3)
    with pytest.raises(PlanError, match=r"/u ends early: 2 of the 9 bytes from 1 on are there"):
        place.read([(1, 10)])


def test_directories_take_other_names_and_go(directory: str):
    place = located(directory)
    (place / "old" / "u").write([b"abc"], 3)
    place.store.rename((place / "old").name, (place / "new").name)
    assert place.names() == {"new": False} and (place / "new" / "u").content() == b"abc"
    place.store.remove((place / "new").name)
    place.store.remove((place / "new").name)
    assert place.names() == {}


def test_a_place_is_writable_and_has_nothing_more_than_before(directory: str):
    (located(directory) / "deep" / "u").check_writable()
    assert located(f"{directory}/deep").names() == {}
    (located(directory) / "file").write([b"abc"], 3)
    (located(directory) / "file").check_writable()
    assert located(directory).names()["file"]


def test_a_place_below_a_file_is_said_before_it_is_written(tmp_path: Path):
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "u", tmp_path / "file" / "deep" / "u"):
        with pytest.raises(PlanError, match=r"u cannot be written: there is a file where a directory would have to be"):
            located(place).check_writable()
    with pytest.raises(PlanError, match=r"/proc/u cannot be written: there can be no such file there"):
        located("/proc/u").check_writable()


def test_a_namenode_that_goes_meanwhile_is_asked_once_more(monkeypatch: pytest.MonkeyPatch):
    """Ask again, as HDFS's client says it; the file system is one of memory, so that the NameNode goes at a known
    moment.
    """
    monkeypatch.setattr(systems, "_HDFS", ("memory",))
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "client", SimpleNamespace(inner=None), raising=False)
    place = located(f"memory://failover{os.getpid()}") / "u"
    opening, left = place.store.system.open, [1]

    def going(*arguments: object, **named: object) -> object:
        if left and left.pop():
            raise RuntimeError("RPC listener disconnected")
        return opening(*arguments, **named)

    monkeypatch.setattr(place.store.system, "open", going)
    place.write([b"abc"], 3)
    assert place.store.system.cat_file(place.name) == b"abc"
    left.append(1)
    npy.write_block(place.path, np.arange(3))
    left.append(1)
    with pytest.raises(PlanError, match=r"u cannot be written: the NameNode went while it was written, .* write it ag"):
        place.write(iter([b"xyz"]), 3)
    left.extend([1, 1])
    with pytest.raises(PlanError, match="u cannot be written: RPC listener disconnected"):
        place.write([b"xyz"], 3)
    assert place.store.system.cat_file(place.name).endswith(np.arange(3).tobytes())
    place.beside("x").store.remove(f"/failover{os.getpid()}")


def test_a_place_that_can_have_no_files_is_said():
    with pytest.raises(PlanError, match=r"/proc/u/v cannot be written: there can be no such file there"):
        located("/proc/u/v").write([b"abc"], 3)


def test_refusals_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = located(tmp_path / "u")
    (tmp_path / "u").write_bytes(b"abc")

    def refuse(*_: object) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr(type(place.store), "read", refuse)
    with pytest.raises(PlanError, match=r"/u cannot be read: there is no permission: not yours"):
        place.read([(0, 3)])


@pytest.mark.parametrize(("scheme", "setting"), [("s3", "AWS_ACCESS_KEY_ID"), ("s3a", "AWS_ACCESS_KEY_ID"),
                                                 ("gs", "GOOGLE_SERVICE_ACCOUNT")])
def test_what_a_store_does_not_do_is_said_with_its_settings(scheme: str, setting: str,
                                                            monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("obstore")
    place = located(f"{scheme}://bucket/u")
    for refusal in (*place.store.errors, *place.store.refusals):
        def refuse(*_: object, error: type[Exception] = refusal) -> None:
            raise error("no token")

        monkeypatch.setattr(type(place.store), "read", refuse)
        with pytest.raises(PlanError, match=rf"://bucket/u cannot be read: .*no token; .*executorEnv\): {setting}"):
            place.read([(0, 3)])


@pytest.mark.parametrize("scheme", objects.SCHEMES)
def test_objects_have_names_in_buckets(scheme: str, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("obstore")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    place = located(f"{scheme}://bucket/deep") / "u.npy"
    assert (place.name, place.path) == ("deep/u.npy", f"{scheme}://bucket/deep/u.npy")
    assert type(place.store) is objects.Objects and not place.store.renames


def test_schemes_and_what_they_need_are_said(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(PlanError, match=r"has the scheme 'foo', which is not known; known are file, s3, gs, az, hdfs"):
        located("foo://bucket/u.npy")
    with pytest.raises(PlanError, match="the path is empty"):
        located("")
    with pytest.raises(PlanError, match="names no bucket; such URLs are s3://bucket/name"):
        located("s3:///u.npy")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(PlanError, match=r"az://container cannot be used: .*Account must be specified; .*AZURE_STORAGE"):
        located("az://container/u.npy")
    monkeypatch.setattr(objects, "obstore", None)
    for scheme in objects.SCHEMES:
        with pytest.raises(PlanError, match=rf"{scheme}://bucket is an object store, which needs .*\[s3\]"):
            located(f"{scheme}://bucket/u.npy")
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(PlanError, match=r"hdfs://host/u is in HDFS, which needs hdfs-native: .*\[hdfs\]"):
        located("hdfs://host/u")
    monkeypatch.setattr(systems, "fsspec", None)
    for url, extra in (("hdfs://host/u", "hdfs"), ("memory://u", "files")):
        with pytest.raises(PlanError, match=rf"which needs fsspec: .*\[{extra}\]"):
            located(url)


# -- .npy -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("shape", [(7,), (6, 5), (5, 6, 7), (4, 40, 50)])
def test_parts_are_read_by_ranges(shape: tuple[int, ...], order: str, directory: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(npy, "_AT_ONCE", 7)
    array = np.asarray(np.random.default_rng(1).random(shape).astype("f4"), order=order)
    place = located(directory) / "u.npy"
    file = np.lib.format
    with fsspec.open(place.path if "://" in place.path else f"file://{place.path}", "wb") as written:
        file.write_array(written, array)
    header = npy.NpyFile.at(place)
    assert header.shape == shape and header.offset == 128
    read: list[int] = []
    store_read = place.store.read
    monkeypatch.setattr(place.store, "read", lambda name, ranges: (
        read.extend(stop - start for start, stop in ranges) or store_read(name, ranges)))
    for box in itertools.product(*[[(0, extent), (0, 2), (1, extent - 1)] for extent in shape]):
        slices = tuple(slice(low, high) for low, high in box)
        read.clear()
        np.testing.assert_array_equal(header.part(place, slices), array[slices])
        assert sum(read) <= 1.05 * array[slices].nbytes
    assert read or "memory" not in directory


def test_files_that_hold_no_array_are_said(directory: str):
    place = located(directory) / "u.npy"
    array = np.arange(12.0).reshape(3, 4)
    npy.write_block(place.path, array, Locations())
    whole = place.content()
    for content, message in ((b"", "cannot be read as .npy"), (b"text", "cannot be read as .npy"),
                             (whole[:60], "it ends within"),
                             (whole[:-8], r"ends early: it has 216 bytes, and an array of shape \(3, 4\)"),
                             (whole[:6] + b"\x09" + whole[7:], "cannot be read as .npy")):
        place.write([content], len(content))
        with pytest.raises(PlanError, match=message):
            npy.NpyFile.at(place)


def test_slabs_of_any_shape_and_dtype_are_written_as_bytes(directory: str):
    for array in (np.ones((4, 3, 2), "c8"), np.zeros((3, 0)), np.ones((2, 2), bool), np.arange(6.0).reshape(2, 3).T):
        npy.write_slabs(f"{directory}/u.npy", array.shape, array.dtype, [array[:1], array[1:]])
        place = located(f"{directory}/u.npy")
        header = npy.NpyFile.at(place)
        np.testing.assert_array_equal(header.part(place, tuple(slice(0, extent) for extent in array.shape)), array)
