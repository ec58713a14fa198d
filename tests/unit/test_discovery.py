"""Spark's discovery script: what it says with CUDA_VISIBLE_DEVICES, with nvidia-smi, and where there is neither."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_worker.system.paths import DISCOVERY_SCRIPT

_MIG = """\
GPU 0: NVIDIA H200 (UUID: GPU-11111111-2222-3333-4444-555555555555)
  MIG 3g.71gb     Device  0: (UUID: MIG-aaaaaaaa-2222-3333-4444-555555555555)
  MIG 1g.18gb     Device  1: (UUID: MIG-bbbbbbbb-2222-3333-4444-555555555555)
GPU 1: NVIDIA H200 (UUID: GPU-22222222-2222-3333-4444-555555555555)
"""


def _discovered(directory: Path, smi: str | None = None, visible: str | None = None) -> list[str]:
    """Return the addresses, on a machine with an nvidia-smi that prints ``smi``, or without one."""
    for tool in ("awk", "tr", "cat"):
        (directory / tool).symlink_to(shutil.which(tool))
    if smi is not None:
        (directory / "smi.txt").write_text(smi)
        (directory / "nvidia-smi").write_text(f'#!/bin/sh\n[ "$1" = -L ] && cat {directory}/smi.txt\n')
        (directory / "nvidia-smi").chmod(0o755)
    environment = {"PATH": str(directory)} | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    resource = json.loads(subprocess.check_output([str(DISCOVERY_SCRIPT)], env=environment, text=True))
    assert resource["name"] == "gpu"
    return resource["addresses"]


def test_neither_gives_no_address(tmp_path):
    assert _discovered(tmp_path) == []


def test_whole_gpus_are_numbers(tmp_path):
    assert _discovered(tmp_path, "GPU 0: A (UUID: GPU-1)\nGPU 1: B (UUID: GPU-2)\n") == ["0", "1"]


def test_an_nvidia_smi_that_hangs_or_fails_is_said(tmp_path):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho no driver; exit 9\n")
    (tmp_path / "timeout").write_text('#!/bin/sh\n[ "$*" = "-k 5 60 nvidia-smi -L" ] && exit 124\n')
    for tool in ("nvidia-smi", "timeout"):
        (tmp_path / tool).chmod(0o755)
    for message in ("nvidia-smi -L has not answered within 60 s", "nvidia-smi -L failed: no driver"):
        ended = subprocess.run([str(DISCOVERY_SCRIPT)], env={"PATH": str(tmp_path)}, capture_output=True, text=True)
        assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", f"gpus.sh: {message}\n")
        (tmp_path / "timeout").unlink(missing_ok=True)


def test_a_gpu_in_mig_mode_is_its_instances(tmp_path):
    assert _discovered(tmp_path, _MIG) == [
        "MIG-aaaaaaaa-2222-3333-4444-555555555555", "MIG-bbbbbbbb-2222-3333-4444-555555555555", "1"]


@pytest.mark.parametrize(("visible", "addresses"), [
    ("0,1", ["0", "1"]),
    ("2, 3,-1,4", ["2", "3"]),
    ("GPU-8932f937,MIG-GPU-8932f937/1/2", ["GPU-8932f937", "MIG-GPU-8932f937/1/2"]),
    ("", []),
    ("NoDevFiles", []),
    ('0","1', []),
])
def test_cuda_visible_devices_comes_first(tmp_path, visible, addresses):
    assert _discovered(tmp_path, _MIG, visible) == addresses


def test_the_command_prints_the_addresses_and_the_path_of_the_script():
    def run(*arguments: str) -> str:
        return subprocess.check_output([sys.executable, "-m", "gpu_worker", "gpus", *arguments], text=True,
                                       env=os.environ | {"CUDA_VISIBLE_DEVICES": "7"})

    assert json.loads(run())["addresses"] == ["7"]
    assert os.access(run("--script").strip(), os.X_OK)
