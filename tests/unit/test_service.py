"""The daemon's process."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

#: Prints how many arenas the C library has after 16 threads allocated at once.
THREADS = """
import ctypes, sys, threading
from gpu_worker.daemon.service import _share_one_arena
if sys.argv[1] == "one":
    _share_one_arena()
together = threading.Barrier(16)
def allocate():
    together.wait()
    block = libc.malloc(4096)
    together.wait()
    libc.free(block)
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
libc.fopen.restype, libc.fopen.argtypes = ctypes.c_void_p, [ctypes.c_char_p] * 2
libc.malloc_info.argtypes, libc.fclose.argtypes = [ctypes.c_int, ctypes.c_void_p], [ctypes.c_void_p]
threads = [threading.Thread(target=allocate) for _ in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
file = libc.fopen(b"/dev/stdout", b"w")
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="tells of glibc's arenas")
@pytest.mark.parametrize("arenas, are_as_wanted", [("one", lambda n: n == 1), ("several", lambda n: n > 1)])
def test_threads_of_the_daemon_share_one_arena(arenas, are_as_wanted):
    output = subprocess.run([sys.executable, "-c", THREADS, arenas], capture_output=True, text=True, check=True).stdout
    assert are_as_wanted(output.count("<heap nr=")), output[:200]
