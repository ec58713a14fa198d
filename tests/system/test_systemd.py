"""A real systemd runs the units, those of a user and, as process 1, those of the system: the first client starts the
service, and a daemon that is killed comes back.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_worker.commands.deployment import templates
from tests.system.worker_tools import eventually

MANAGER = Path("/usr/lib/systemd/systemd")
SCRIPT = Path(__file__).with_name("systemd.sh")
SYSTEM_SCRIPT = Path(__file__).with_name("systemd_system.sh")
PROGRAM = str(Path(sys.executable).with_name("gpu-worker"))
#: Where systemd keeps its groups of processes, whichever version of them the machine has.
GROUPS = [Path("/sys/fs/cgroup/systemd"), Path("/sys/fs/cgroup")]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(
    os.geteuid() != 0 or not MANAGER.exists() or not shutil.which("unshare") or not Path(PROGRAM).exists(),
    reason="needs systemd, unshare and root")]


@pytest.fixture
def group() -> Iterator[Path]:
    """Make a group of processes in which a manager makes those of its units; it goes with them."""
    parent = next(each for each in GROUPS if (each / "cgroup.procs").exists())
    path = parent / f"vispark-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no groups of processes here: {error}")
    yield path
    for inside in sorted((each for each in path.rglob("*") if each.is_dir()), reverse=True):
        _remove(inside)
    _remove(path)


def _remove(path: Path) -> None:
    """Remove a group, whose last process may just be ending."""
    assert eventually(lambda: not (path / "cgroup.procs").read_text())
    path.rmdir()


def test_units_of_a_user_start_restart_and_stop_the_daemon(group: Path, tmp_path: Path):
    templates.write("systemd", tmp_path / "units", templates.values(PROGRAM, "vispark"))
    command = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c",
               f'echo 0 > "{group}/cgroup.procs" && exec sh "$@"', "sh", SCRIPT, tmp_path / "units" / "user",
               tmp_path / "home", PROGRAM]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    if ran.stderr.startswith("unshare: "):
        pytest.skip(ran.stderr)
    shown = dict(line.split(" ", 1) for line in ran.stdout.splitlines())
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}\n{(tmp_path / 'home' / 'systemd.log').read_text()}"
    assert shown["before"] == "inactive" and shown["stopped"] == "inactive"
    assert shown["started"] == "serves /run/user/0/vispark"
    assert all(", up " in shown[step] for step in ("status", "restarted", "again"))
    assert shown["left"] == "daemon.log"


@pytest.mark.timeout(120)
def test_units_of_the_system_serve_a_user_as_process_1_starts_them(group: Path, tmp_path: Path):
    templates.write("systemd", tmp_path / "units", templates.values(PROGRAM, "vispark"))
    root = Path(__file__).resolve().parents[2]
    command = ["unshare", "--mount", "--pid", "--fork", "--uts", "--mount-proc", "--kill-child", "sh", "-c",
               f'echo 0 > "{group}/cgroup.procs" && exec sh "$@"', "sh", SYSTEM_SCRIPT, tmp_path / "units", PROGRAM,
               "nobody", sys.base_prefix, root]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as process:
        try:
            lines = []
            for line in process.stdout:
                lines.append(line)
                if line.startswith("end "):
                    break
        finally:
            # Process 1 ends by no other signal, and all of its namespace with it.
            process.kill()
    if lines[0].startswith("unshare: "):
        pytest.skip(lines[0])
    shown = dict(line.rstrip().split(" ", 1) for line in lines)
    assert shown["end"] == "0", "".join(lines)
    assert shown["before"] == "inactive" and shown["stopped"] == "inactive"
    assert shown["directory"] == f"{shown['user']} 700" and shown["owner"] == shown["user"]
    assert shown["started"] == f"serves /run/vispark/{shown['user']}"
    assert all(", up " in shown[step] for step in ("status", "restarted", "again"))
    assert shown["left"] == "daemon.log"
