"""Description of the machine that a run was on, and of the software that decides its figures."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pyspark

from gpu_worker.device.host.memory import host_memory

try:
    from cuda.core import Device
except ImportError:
    Device = None

_PACKAGES = ("numpy", "msgpack", "pycuda", "cuda-core", "cuda-bindings", "cupy", "cupy-cuda12x",
             "cupy-cuda13x", "py4j")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Gpu:
    """Description of a GPU."""

    name: str
    multiprocessors: int
    memory: int


def gpus() -> list[Gpu]:
    """Return the GPUs of this machine, as nvidia-smi lists them; none without such a command, or where no GPU may be
    used.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return []
    rows = _query("name,memory.total")
    return [Gpu(name, _multiprocessors(), int(memory) << 20) for name, memory in rows]


def gpus_used() -> int:
    """Return the number of GPUs that the processes of a run may use: those that ``CUDA_VISIBLE_DEVICES`` names."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return min(len(gpus()), len(named.split(","))) if named else len(gpus())


def cores() -> int:
    """Return the number of cores that this process may keep busy: those it may run on, or fewer where its container has
    a quota.
    """
    count = len(os.sched_getaffinity(0))
    quota, _, period = (_QUOTA.read_text() if _QUOTA.is_file() else "max").strip().partition(" ")
    return count if quota == "max" else max(1, min(count, int(quota) // int(period)))


def description() -> dict[str, object]:
    """Everything about this machine that a result file keeps; it names no host, user or path."""
    listed = gpus()
    driver = _query("driver_version")
    return {
        "cpu": _cpu(), "cores": cores(), "memory_bytes": host_memory(),
        "gpus": [{"name": gpu.name, "multiprocessors": gpu.multiprocessors, "memory_bytes": gpu.memory}
                 for gpu in listed],
        "driver": driver[0][0] if driver else None, "kernel": platform.release(),
        "python": platform.python_version(), "java": _java(), "compiler": _first_line(["g++", "--version"]),
        "load_average": list(os.getloadavg()), "packages": _versions(),
    }


def commit() -> dict[str, object]:
    """Return the commit that runs, and the number of files that differ from it; without git, what ``VISPARK_COMMIT``
    says.
    """
    name = _first_line(["git", "-C", str(_ROOT), "rev-parse", "HEAD"]) or os.environ.get("VISPARK_COMMIT")
    changed = _output(["git", "-C", str(_ROOT), "status", "--porcelain"])
    return {"commit": name, "changed_files": None if changed is None else len(changed.splitlines())}


def _multiprocessors() -> int:
    if Device is None:
        return 0
    return Device(0).properties.multiprocessor_count


def _query(fields: str) -> list[list[str]]:
    text = _output(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"])
    return [[part.strip() for part in line.split(",")] for line in (text or "").splitlines()]


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return _first_line([f"{home}/bin/java" if home else "java", "--version"])


def _versions() -> dict[str, str]:
    # Spark may be there without a distribution's metadata.
    versions = {"pyspark": pyspark.__version__}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _first_line(command: Sequence[str]) -> str | None:
    return next(iter((_output(command) or "").splitlines()), None)


def _output(command: Sequence[str]) -> str | None:
    """Return the output of a command; None where there is no such command or it fails."""
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return process.stdout if process.returncode == 0 else None
