"""Programs of another user of the machine, which only root can start; the others skip these tests."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.worker_tools import SECONDS

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
OTHER = 65534


def as_other(code: str) -> str:
    """Return the output of a program that another user runs; modules are imported before, as that user may not read
    the repository.
    """
    program = f"import os, pathlib, socket, sys\nsys.path[:0] = {sys.path!r}\n" \
              "import gpu_worker.client, tests.system.worker_tools\n" \
              f"os.setgroups([]); os.setgid({OTHER}); os.setuid({OTHER})\n{code}"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS)
    return result.stdout + result.stderr


def refusals(attempts: dict[str, str]) -> dict[str, str]:
    """Evaluate expressions as another user; return by name how each ends: an error's name, or "done: ..."."""
    lines = ["def attempt(name, what):",
             "    try:",
             "        print(name, 'done:', eval(what))",
             "    except Exception as error:",
             "        print(name, type(error).__name__)"]
    lines += [f"attempt({name!r}, {what!r})" for name, what in attempts.items()]
    output = as_other("\n".join(lines)).splitlines()
    ended = dict(line.split(" ", 1) for line in output)
    assert ended.keys() == attempts.keys(), output
    return ended


@contextlib.contextmanager
def opened(*paths: Path) -> Iterator[None]:
    """Let other users enter and connect for a while."""
    modes = [stat.S_IMODE(path.stat().st_mode) for path in paths]
    try:
        for path, mode in zip(paths, modes, strict=True):
            path.chmod(0o777 if path.is_socket() else mode | 0o055)
        yield
    finally:
        for path, mode in zip(paths, modes, strict=True):
            path.chmod(mode)
