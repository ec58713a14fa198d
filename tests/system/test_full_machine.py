"""A full ``/dev/shm`` and a full disk: what needs them ends in an error that names them, and the rest goes on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

_APART = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--mount", "--pid", "--fork",
          "--kill-child", "--mount-proc"]


#: What a file system that copies on write may do: blocks were allocated, and what is stored finds no room.
_STORES = """
import os, sys
import numpy as np
from gpu_worker.device.memory.spill_files import SpillFiles, store
from gpu_worker.protocol.errors import OutOfMemory
os.posix_fallocate = lambda descriptor, offset, nbytes: os.ftruncate(descriptor, nbytes)
memory = SpillFiles(sys.argv[1]).reserve(8 << 20)
with open(os.path.join(sys.argv[1], "other"), "wb") as other:
    other.write(bytes(15 << 20))
try:
    store(memory, np.ones(8 << 20, np.uint8))
except OutOfMemory as error:
    print(error)
"""


def test_rows_that_find_no_room_on_a_disk_are_an_error_and_no_fault(tmp_path: Path):
    if not shutil.which("unshare") or subprocess.run([*_APART, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no unshare, or no right to use it")
    ran = subprocess.run([*_APART, "sh", "-c", f'mount -t tmpfs -o size=20m t {tmp_path} && exec "$@"', "sh",
                          sys.executable, "-c", _STORES, str(tmp_path)], capture_output=True, text=True, timeout=60,
                         check=False)
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"ENOSPC.*spark\.vispark\.spillDir", ran.stdout)


def test_a_full_disk_is_named_and_a_full_dev_shm_is_not_needed(tmp_path: Path):
    if not shutil.which("unshare") or subprocess.run([*_APART, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no unshare, or no right to use it")
    files = tmp_path / "files"
    files.mkdir()
    runtime = tempfile.mkdtemp(prefix="vf-")
    mounted = f"mount -t tmpfs -o size=64k t /dev/shm && mount -t tmpfs -o size=20m t {files} && exec"
    program = [sys.executable, "-m", "tests.system.full_machine", str(files)]
    ran = subprocess.run([*_APART, "sh", "-c", f'{mounted} "$@"', "sh", *program], capture_output=True, text=True,
                         env={**os.environ, "VISPARK_RUNTIME_DIR": runtime}, timeout=110, check=False)
    shutil.rmtree(runtime)
    assert ran.returncode == 0, ran.stderr
    # Spark says a line of its own there, on some machines.
    outcomes = dict(line.split(": ", 1) for line in ran.stdout.splitlines() if ": " in line)
    assert outcomes["shared memory"] == "4950" and outcomes["held"] == "4950 files: 0"
    assert re.search(r"OutOfMemory: .*ENOSPC.*spark\.vispark\.spillDir", outcomes["GPU_HOST_AND_DISK"]), ran.stdout
    assert re.search(r"OutOfMemory: .*spark\.vispark\.hostMemory", outcomes["GPU_AND_HOST"]), ran.stdout
