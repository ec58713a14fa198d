"""A fail-point fails once, in one process, and every one has a name that is listed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gpu_worker
from gpu_worker.system.failpoints import NAMES


def passing(directory: Path | None, code: str) -> subprocess.Popen:
    environment = dict(os.environ)
    environment.pop("VISPARK_FAILPOINTS", None)
    if directory is not None:
        environment["VISPARK_FAILPOINTS"] = str(directory)
    return subprocess.Popen([sys.executable, "-c", f"from gpu_worker.system.failpoints import failpoint\n{code}"],
                            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def outcome(directory: Path | None, code: str) -> tuple[int, str]:
    with passing(directory, code) as process:
        output = "".join(process.communicate(timeout=30))
    return process.returncode, output


def test_every_point_in_the_code_is_listed_and_the_other_way_round():
    root = Path(gpu_worker.__file__).parents[1]
    used = {name for package in ("gpu_worker", "vispark") for path in (root / package).rglob("*.py")
            for name in re.findall(r'failpoint\("([^"]+)"\)', path.read_text())}
    assert used == set(NAMES)


def test_nothing_happens_without_a_directory_or_a_file(tmp_path):
    assert outcome(None, "failpoint('accepted')")[0] == 0
    assert outcome(tmp_path, "failpoint('accepted')")[0] == 0


def test_an_unknown_name_is_a_defect(tmp_path):
    status, output = outcome(tmp_path, "failpoint('nowhere')")
    assert status == 1 and "no fail-point is called 'nowhere'" in output


@pytest.mark.parametrize("content", ["", "kill", "kill\n"])
def test_a_kill_happens_once(tmp_path, content):
    (tmp_path / "accepted").write_text(content)
    assert outcome(tmp_path, "failpoint('replied'); failpoint('accepted')")[0] == -signal.SIGKILL
    assert not list(tmp_path.iterdir())
    assert outcome(tmp_path, "failpoint('accepted')")[0] == 0


def test_an_error(tmp_path):
    (tmp_path / "accepted").write_text("error")
    status, output = outcome(tmp_path, "failpoint('accepted')")
    assert status == 1 and "VisparkError: the fail-point accepted" in output


def test_a_delay(tmp_path):
    (tmp_path / "accepted").write_text("delay 0.3")
    status, output = outcome(tmp_path, "import time\nt = time.monotonic()\nfailpoint('accepted')\n"
                                     "print(time.monotonic() - t)")
    assert status == 0 and 0.3 <= float(output) < 5


def test_a_stop(tmp_path):
    (tmp_path / "accepted").write_text("stop")
    with passing(tmp_path, "failpoint('accepted')") as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        assert process.wait(30) == 0


def test_of_several_processes_one_fails(tmp_path):
    starts = time.time() + 1.0
    (tmp_path / "accepted").write_text("kill")
    code = f"import time\nwhile time.time() < {starts}: pass\nfailpoint('accepted')"
    processes = [passing(tmp_path, code) for _ in range(4)]
    for process in processes:
        process.communicate(timeout=30)
    assert sorted(process.returncode for process in processes) == [-signal.SIGKILL, 0, 0, 0]
