"""Compiled kernels on disk: kept by content, checked when read, shared by processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.device.base import Source
from gpu_worker.device.cache import KernelCache
from gpu_worker.device.host import compiler
from gpu_worker.device.host.compiler import Compiler
from gpu_worker.device.host.device import HostDevice
from gpu_worker.protocol.errors import DeviceUnavailable
from tests.device.bench import DeviceBench

SOURCE = Source("__constant__ int c; __global__ void add(int* x) { x[threadIdx.x] += N + c; }", options=("-DN=3",))


def test_entries_are_kept_apart_by_all_their_parts(tmp_path: Path):
    cache = KernelCache(tmp_path / "kernels")
    cache.put(b"one", "ab", "c")
    cache.put(b"two", "a", "bc")
    assert cache.get("ab", "c") == b"one"
    assert KernelCache(tmp_path / "kernels").get("a", "bc") == b"two"
    assert cache.get("abc") is None


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", lambda data: b"x" + data[1:],
                                    lambda data: data + b"x", lambda data: data[:-1] + bytes([data[-1] ^ 1])])
def test_a_damaged_entry_is_none(tmp_path: Path, damage):
    cache = KernelCache(tmp_path / "kernels")
    cache.put(b"machine code", "key")
    entry, = cache.directory.iterdir()
    entry.write_bytes(damage(entry.read_bytes()))
    assert cache.get("key") is None
    cache.put(b"machine code", "key")
    assert cache.get("key") == b"machine code"


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path):
    cache = KernelCache(tmp_path / "kernels", most=1000)
    (cache.directory / "not an entry").write_bytes(bytes(5000))
    for number in range(12):
        cache.put(bytes(100), str(number))
        for path in cache.directory.iterdir():
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 10))
        assert cache.get("0") == bytes(100)
    cache.trim()
    kept = [number for number in range(12) if cache.get(str(number))]
    assert kept == [0, *range(6, 12)]
    assert (cache.directory / "not an entry").exists()


def test_the_directory_is_the_users_own(tmp_path: Path):
    assert KernelCache(tmp_path / "a" / "b").directory.stat().st_mode & 0o777 == 0o700
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(DeviceUnavailable, match="0700"):
        KernelCache(tmp_path / "open")
    (tmp_path / "file").write_text("")
    with pytest.raises(DeviceUnavailable, match="cannot be made"):
        KernelCache(tmp_path / "file" / "kernels")


def test_the_default_directory_is_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert KernelCache().directory == tmp_path / "vispark" / "kernels"


def test_a_full_disk_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cache = KernelCache(tmp_path / "kernels")
    cache.directory.rmdir()
    cache.put(b"machine code", "key")
    assert cache.get("key") is None


def opened(directory: Path) -> DeviceBench:
    device = HostDevice(cache=KernelCache(directory))
    return DeviceBench(device, device.stream())


def added(bench: DeviceBench, source: Source) -> int:
    buffer = bench.put(np.zeros(1, "i4"))
    bench.device.launch(bench.device.compile(source, "add"), (1,), (1,), [buffer], stream=bench.stream)
    return int(bench.get(buffer, 1, "i4")[0])


def test_the_host_compiles_once_per_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    built = []
    build = Compiler._build
    monkeypatch.setattr(Compiler, "_build", lambda self, *given: built.append(given) or build(self, *given))
    other = Source(SOURCE.text, options=("-DN=4",))
    assert added(opened(tmp_path / "k"), SOURCE) == 3
    assert added(opened(tmp_path / "k"), SOURCE) == 3
    assert len(built) == 1
    assert added(opened(tmp_path / "k"), other) == 4
    assert len(built) == 2
    for entry in (tmp_path / "k").iterdir():
        entry.write_bytes(entry.read_bytes()[:100])
    assert added(opened(tmp_path / "k"), SOURCE) == 3
    assert len(built) == 3


def test_constants_belong_to_their_source_alone(tmp_path: Path):
    sources = [Source(SOURCE.text, SOURCE.file, SOURCE.options, (("c", np.int32(c).tobytes()),)) for c in (10, 20)]
    first, second = opened(tmp_path / "k"), opened(tmp_path / "k")
    assert [added(bench, source) for bench in (first, second) for source in sources] == [13, 23, 13, 23]


def test_a_source_with_headers_of_its_own_is_compiled_anew(tmp_path: Path):
    (tmp_path / "n.h").write_text("#define N 3\n")
    source = Source('#include "n.h"\n' + SOURCE.text, options=(f"-I{tmp_path}",))
    assert added(opened(tmp_path / "k"), source) == 3
    (tmp_path / "n.h").write_text("#define N 30\n")
    assert added(opened(tmp_path / "k"), source) == 30


def test_processes_fill_a_cache_at_once(tmp_path: Path):
    script = (f"import sys; sys.path.insert(0, {os.getcwd()!r})\n"
              "from pathlib import Path\nfrom tests.device.test_cache import SOURCE, added, opened\n"
              f"assert added(opened(Path({str(tmp_path / 'k')!r})), SOURCE) == 3")
    running = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert added(opened(tmp_path / "k"), SOURCE) == 3
    assert not [path for path in (tmp_path / "k").iterdir() if path.name.startswith(".")]


def test_the_compiler_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch):
    plain = Compiler.find()
    monkeypatch.setenv("CXX", "g++ -m64")
    assert Compiler.find().command == ("g++", "-m64")
    assert Compiler.find().identity != plain.identity
    assert compiler.HEADERS.is_dir()
