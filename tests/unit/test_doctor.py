"""``gpu-worker doctor`` says what a machine has, what is missing, and what mends it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_worker.protocol import extras
from gpu_worker.system import doctor

pytestmark = pytest.mark.slow


def _doctor(tmp_path: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"VISPARK_RUNTIME_DIR": str(tmp_path / "run"), "XDG_CACHE_HOME": str(tmp_path)}
    return subprocess.run([sys.executable, "-m", "gpu_worker", "doctor", *arguments], env=environment | variables,
                          capture_output=True, text=True, check=False)


def test_a_machine_that_runs_the_tests_is_well(tmp_path: Path):
    ended = _doctor(tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[-1] == "vispark runs here"
    assert len(lines) <= 30, "more than a screen"
    assert not (tmp_path / "run" / "daemon.sock").exists(), "a daemon was started"


def test_what_is_missing_is_named_with_what_mends_it(tmp_path: Path):
    ended = _doctor(tmp_path, "--json", CXX="no-such-compiler", JAVA_HOME=str(tmp_path / "no-java"))
    assert ended.returncode == 1
    missing = {one["name"]: one for one in json.loads(ended.stdout) if one["state"] == "missing"}
    assert set(missing) == {"Java", "CPU device"}
    assert "openjdk-17" in missing["Java"]["mend"]
    assert "no-such-compiler" in missing["CPU device"]["found"] and "CXX" in missing["CPU device"]["mend"]


def test_a_java_that_is_too_old_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\necho \'openjdk version "11.0.2" 2019-01-15\' >&2\n')
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    findings = {one.name: one for one in doctor.examine(str(tmp_path / "run"))}
    assert findings["Java"].is_bad and "version 11" in findings["Java"].found


@pytest.mark.parametrize(("listed", "state"), [
    (["NVIDIA H200, 580.1"], "ok"), (["NVIDIA L4, 580.1", "NVIDIA L4, 580.1"], "ok"),
    (["NVIDIA H200, 580.1", "NVIDIA L4, 580.1"], "optional")])
def test_gpus_of_different_kinds_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: list[str],
                                          state: str):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\ncat <<END\n" + "\n".join(listed) + "\nEND\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    finding = doctor._driver()
    assert finding.state == state and all(line in finding.found for line in listed)
    assert ("CUDA_VISIBLE_DEVICES" in finding.mend) == (state == "optional")


@pytest.mark.parametrize(("script", "message"), [
    ("echo no driver; exit 9", "nvidia-smi failed: no driver"), ("exit 9", "nvidia-smi failed: status 9"),
    ("sleep 60", "nvidia-smi has not answered within 0.2 s"), (None, "nvidia-smi is not there")])
def test_what_nvidia_smi_says_of_a_driver_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None,
                                                  message: str):
    monkeypatch.setattr(doctor, "_TOOL_SECONDS", 0.2)
    if script is not None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script.replace('sleep', 'exec /bin/sleep')}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = doctor._driver()
    assert (finding.state, finding.found) == ("optional", message)
    if script == "exit 9":
        (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nprintf '\\377 a GPU\\n'\n")
        assert doctor._driver().found == "\ufffd a GPU"


def test_extras_that_are_not_installed_are_one_line(monkeypatch: pytest.MonkeyPatch):
    assert set(doctor._EXTRAS) <= set(extras.EXTRAS)
    versions = {"zarr": None, "h5py": None}
    monkeypatch.setattr(doctor, "_version", lambda name: versions.get(name, "1.0"))
    finding = doctor._extras()
    assert (finding.state, finding.found) == ("optional", "not installed: zarr (zarr), hdf5 (h5py)")
    assert finding.mend.startswith("pip install '.[zarr,hdf5]'")
    versions.clear()
    assert doctor._extras().state == "ok"


def _found(tmp_path: Path, name: str) -> doctor.Finding:
    return {one.name: one for one in doctor.examine(str(tmp_path / "run"), str(tmp_path / "kernels"))}[name]


@pytest.fixture
def nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave checks out that start processes."""
    for name in ("_device", "_java", "_driver"):
        monkeypatch.setattr(doctor, name, lambda *_: doctor.Finding("other", "ok", "", ""))


@pytest.mark.parametrize(("name", "directory"), [("runtime directory", "run"), ("kernel cache", "kernels")])
def test_wrong_permissions_are_told_with_the_command_that_mends_them(tmp_path: Path, nothing_else, name, directory):
    private = tmp_path / directory
    private.mkdir(mode=0o700)
    assert _found(tmp_path, name).state == "ok"
    private.chmod(0o777)
    finding = _found(tmp_path, name)
    assert (finding.state, finding.found, finding.mend) == (
        "missing", f"{private} has mode 0777", f"chmod 700 {private}")
    subprocess.run(finding.mend, shell=True, check=True)
    (private / "file").touch()
    (private / "file").chmod(0o666)
    finding = _found(tmp_path, name)
    assert (finding.state, finding.mend) == ("optional", f"chmod go-rwx {private / 'file'}")
    subprocess.run(finding.mend, shell=True, check=True)
    assert _found(tmp_path, name).state == "ok"
    tmp_path.chmod(0o777)
    finding = _found(tmp_path, name)
    assert finding.state == "optional" and "anybody may move away" in finding.found
    assert finding.mend == f"chmod +t {tmp_path}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize(("name", "directory"), [("runtime directory", "run"), ("kernel cache", "kernels")])
def test_what_belongs_to_another_user_is_told(tmp_path: Path, nothing_else, name, directory):
    private = tmp_path / directory
    private.mkdir(mode=0o700)
    (private / "planted").touch()
    os.chown(private / "planted", 65534, 65534)
    finding = _found(tmp_path, name)
    assert finding.is_bad and f"{private / 'planted'} belong" in finding.found
    assert finding.mend == f"rm {private / 'planted'}"
    os.chown(private, 65534, 65534)
    finding = _found(tmp_path, name)
    assert finding.is_bad and "belongs to user 65534" in finding.found and "name another one" in finding.mend


def test_a_runtime_directory_that_is_a_link_is_told(tmp_path: Path, nothing_else):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    finding = _found(tmp_path, "runtime directory")
    assert finding.is_bad and finding.mend == f"rm {tmp_path / 'run'}"


def test_a_cache_that_cannot_be_made_is_told(tmp_path: Path, nothing_else):
    (tmp_path / "file").touch()
    (tmp_path / "kernels").symlink_to(tmp_path / "file" / "kernels")
    finding = _found(tmp_path, "kernel cache")
    assert finding.is_bad and f"{tmp_path / 'file'} cannot be written" in finding.found
    assert "spark.vispark.cacheDir" in finding.mend
