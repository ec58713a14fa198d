"""Kernels that go wrong end their process, or make the device say so; they never hang and never pass unseen.

Each runs in a process of its own, with a slot of a crash record.
"""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_worker.system import crash_record
from tests.device.bench import opened

SCRIPT = """
import ctypes, mmap, sys
from pathlib import Path
import numpy as np
from gpu_worker.system import crash_record
from gpu_worker.device import open_devices
from gpu_worker.device.base import Source
from gpu_worker.protocol.errors import KernelFault

kind, cache_dir, kernels, name, grid, block, box = sys.argv[1:]
with open(box, "r+b") as file:
    memory = mmap.mmap(file.fileno(), 8)
slot = ctypes.addressof(ctypes.c_char.from_buffer(memory))
crash_record.current_slot = lambda: slot
device, = open_devices(kind, addresses=["0"], cache_dir=cache_dir)
stream = device.stream()
kernel = device.compile(Source(Path(kernels).read_text(), "faults.cu"), name)
argument = np.uint64(0) if name == "illegal_address" else np.int32(9)
try:
    device.launch(kernel, (int(grid),), (int(block),), [argument], stream=stream)
    device.synchronize(stream=stream)
except KernelFault as fault:
    print(fault.message)
    try:
        device.allocate(8, stream=stream)
    except KernelFault:
        sys.exit(42)
"""

FAULTS = {"illegal_address": signal.SIGSEGV, "trap": signal.SIGABRT, "failed_assertion": signal.SIGABRT,
          "diverging_barrier": None}


def run(kind: str, cache_dir: str, name: str, box: Path, grid: int, block: int) -> subprocess.CompletedProcess:
    opened(kind, cache_dir).close()
    box.write_bytes(struct.pack("=ii", crash_record.RUNNING, 0))
    kernels = Path(__file__).parent / "kernels" / "faults.cu"
    return subprocess.run([sys.executable, "-c", SCRIPT, kind, cache_dir, str(kernels), name, str(grid), str(block),
                           str(box)], capture_output=True, text=True, timeout=60, check=False)


# Blocks run on a team's threads as well as on the caller's, and on fibers' stacks.
@pytest.mark.parametrize(("grid", "block"), [(1, 32), (500, 64)])
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_on_the_host_leaves_its_mark(cache_dir: str, tmp_path: Path, name: str, grid: int, block: int):
    box = tmp_path / "box"
    done = run("host", cache_dir, name, box, grid, block)
    number = FAULTS[name]
    if number is None:
        assert done.returncode == 42, done.stderr
        assert "faults.cu" in done.stdout and "only some of the threads" in done.stdout
        return
    assert done.returncode == -number, done.stderr
    assert struct.unpack("=ii", box.read_bytes()) == (crash_record.CULPRIT, number)


def test_an_assertion_says_which(cache_dir: str, tmp_path: Path):
    assert "n == 12345" in run("host", cache_dir, "failed_assertion", tmp_path / "box", 1, 1).stderr


# A GPU lets warp operations and barriers that differ pass or hang as it likes, so that one is the host's alone.
@pytest.mark.parametrize("name", ["illegal_address", "trap", "failed_assertion"])
def test_a_fault_on_a_gpu_is_remembered(cache_dir: str, tmp_path: Path, name: str):
    done = run("cuda", cache_dir, name, tmp_path / "box", 4, 64)
    assert done.returncode == 42, done.stderr
