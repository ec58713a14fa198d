"""Examination of a machine: vispark's requirements, the findings, and the commands that mend them."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

from gpu_worker.protocol import device_kinds
from gpu_worker.protocol.errors import VisparkError, WorkerUnavailable
from gpu_worker.protocol.extras import install
from gpu_worker.protocol.messages import Status
from gpu_worker.system import admin
from gpu_worker.system.paths import MAX_SOCKET_PATH, VARIABLE, kernel_cache, locate
from gpu_worker.system.permissions import ANYTHING, WRITE, exposures

_PYTHONS = ((3, 11), (3, 14))
_JAVA = 17
_DESCRIPTORS = 1024
_SHARED_MEMORY = 1 << 30
#: Seconds that a program may take which is asked.
_TOOL_SECONDS = 20.0

#: A package of each extra that has no line of its own.
_EXTRAS = {"s3": "obstore", "hdfs": "hdfs-native", "zarr": "zarr", "hdf5": "h5py", "ucx": "libucx-cu13",
           "dashboard": "starlette", "metrics": "prometheus_client", "plot": "matplotlib", "aws": "boto3"}

# Devices are opened in a process of their own: a context of CUDA is not for the one that prints.
_OPEN_DEVICES = """
import json, sys
from gpu_worker.device import open_devices
devices = open_devices(sys.argv[1])
print(json.dumps([[device.name, device.memory().total] for device in devices]))
"""


@dataclass(frozen=True)
class Finding:
    """Result of one check: its subject, the finding, and the way to mend it.

    Attributes
    ----------
    name : str
        What was looked at.
    state : str
        "ok"; "missing": programs do not run without it; "optional": a feature does not.
    found : str
        What is there.
    mend : str
        The command or setting that mends it; empty where nothing has to be mended.

    Examples
    --------
    >>> Finding("Python", "ok", "3.11.7", "").is_bad
    False
    """

    name: str
    state: str
    found: str
    mend: str

    @property
    def is_bad(self) -> bool:
        """Whether programs do not run as the machine is."""
        return self.state == "missing"


def examine(runtime_dir: str | None = None, cache_dir: str | None = None) -> list[Finding]:
    """Look at everything that vispark needs on this machine; nothing is started or changed.

    Parameters
    ----------
    runtime_dir : str or None
        The runtime directory of the worker, if it is not the usual one.
    cache_dir : str or None
        The directory of compiled kernels (``spark.vispark.cacheDir``), if it is not the user's own.

    Returns
    -------
    list of Finding
        In the order in which a person would mend them.

    Examples
    --------
    >>> [finding.name for finding in examine()][:3]
    ['Python', 'Java', 'PySpark']
    """
    checks: list[Callable[[], Finding]] = [
        _python, _java, _pyspark, *_devices(required=True), _driver, *_devices(required=False),
        lambda: _package("pyarrow", "text files (vispark.read_text)", "text"),
        lambda: _package("fsspec", "grids in file systems with URLs", "files"),
        lambda: _package("mpi4py", "grids over several nodes", "mpi"), _extras,
        lambda: _runtime_directory(runtime_dir), lambda: _kernel_cache(cache_dir), lambda: _daemon(runtime_dir),
        _descriptors, _shared_memory,
    ]
    return [check() for check in checks]


def as_json(findings: list[Finding]) -> str:
    """Write findings as a JSON array of objects, for programs."""
    return json.dumps([vars(finding) for finding in findings], indent=2)


def _python() -> Finding:
    low, high = _PYTHONS
    version = sys.version.split()[0]
    if low <= sys.version_info[:2] < high:
        return Finding("Python", "ok", f"{version}, {sys.executable}", "")
    return Finding("Python", "missing", version, "use Python 3.11, 3.12 or 3.13: apt-get install python3.11-venv")


def _java() -> Finding:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java") or ""
    output = _output([java, "-version"])[0] if java else None
    version = re.search(r'version "(\d+)', output or "")
    if version is None:
        return Finding("Java", "missing", f"none by JAVA_HOME={home}" if home else "none on PATH",
                       "apt-get install openjdk-17-jre-headless, or name one by JAVA_HOME")
    if int(version[1]) < _JAVA:
        return Finding("Java", "missing", f"version {version[1]}, {java}",
                       "apt-get install openjdk-17-jre-headless; put it first on PATH, or name it by JAVA_HOME")
    return Finding("Java", "ok", f"version {version[1]}, {java}", "")


def _pyspark() -> Finding:
    version = _version("pyspark")
    if version is None:
        return Finding("PySpark", "missing", "not installed for this Python", "pip install 'pyspark>=3.5,<5'")
    good = version.startswith(("3.5.", "4."))
    return Finding("PySpark", "ok" if good else "missing", version, "" if good else "pip install 'pyspark>=3.5,<5'")


def _devices(*, required: bool) -> list[Callable[[], Finding]]:
    return [partial(_device, kind) for kind in device_kinds.kinds() if kind.title and kind.is_required == required]


def _device(kind: device_kinds.DeviceKind) -> Finding:
    """Open devices of a kind in a process of their own; the host's needs a compiler, and compiles with it."""
    ran = subprocess.run([sys.executable, "-c", _OPEN_DEVICES, kind.name], capture_output=True, text=True, timeout=120,
                         check=False)
    if ran.returncode == 0:
        devices = json.loads(ran.stdout.splitlines()[-1])
        text = ", ".join(f"{device} with {total / 2**30:.1f} GiB" for device, total in devices)
        return Finding(kind.title, "ok", text, "")
    lines = ran.stderr.strip().splitlines()
    why = lines[-1].partition(": ")[2] or lines[-1] if lines else f"its process ended with {ran.returncode}"
    return Finding(kind.title, "missing" if kind.is_required else "optional", why, kind.mend)


def _driver() -> Finding:
    """Ask the driver's own tool for the GPUs."""
    output, why = _output(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
    if output is None:
        return Finding("GPU driver", "optional", f"nvidia-smi {why}",
                       "install NVIDIA's driver for CUDA 12.4 or later, where there is a GPU")
    listed = "; ".join(output.splitlines())
    if len({line.partition(",")[0].strip() for line in output.splitlines()}) > 1:
        return Finding("GPU driver", "optional", f"{listed}: GPUs of different kinds, and the slowest is waited for",
                       "name those of one kind by CUDA_VISIBLE_DEVICES, for Spark's workers too")
    return Finding("GPU driver", "ok", listed, "")


def _package(name: str, purpose: str, extra: str) -> Finding:
    version = _version(name)
    if version is not None:
        return Finding(name, "ok", f"{version}, for {purpose}", "")
    return Finding(name, "optional", f"not installed; needed for {purpose}", install(extra))


def _extras() -> Finding:
    """List the optional extras that are not installed, on one line."""
    missing = [extra for extra, name in _EXTRAS.items() if _version(name) is None]
    there = [f"{name} {_version(name)}" for extra, name in _EXTRAS.items() if extra not in missing]
    if not missing:
        return Finding("extras", "ok", ", ".join(there), "")
    names = ", ".join(f"{extra} ({_EXTRAS[extra]})" for extra in missing)
    return Finding("extras", "optional", f"not installed: {names}", install(*missing))


def _runtime_directory(explicit: str | None) -> Finding:
    directory = locate(explicit)
    another = f"name another one by {VARIABLE}: yours, of mode 0700, with a short path"
    if exposed := _exposed("runtime directory", directory.path, ANYTHING, another):
        return exposed
    try:
        directory.ensure()
    except (VisparkError, OSError) as error:
        return Finding("runtime directory", "missing", str(error), another)
    length = len(os.fsencode(directory.socket))
    return Finding("runtime directory", "ok", f"{directory.path}, sockets of {length} of {MAX_SOCKET_PATH} bytes", "")


def _kernel_cache(explicit: str | None) -> Finding:
    """Look at the directory of compiled kernels, which is made when the first is compiled."""
    # A link is followed here: what it leads to is looked at.
    directory = (Path(explicit) if explicit else kernel_cache()).resolve()
    another = "name another one by spark.vispark.cacheDir or XDG_CACHE_HOME"
    if exposed := _exposed("kernel cache", directory, WRITE, another):
        return exposed
    there = directory
    while not there.exists() and there != there.parent:
        there = there.parent
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        return Finding("kernel cache", "missing" if explicit else "optional",
                       f"{there} cannot be written; kernels are compiled anew by each process", another)
    return Finding("kernel cache", "ok", str(directory), "")


def _exposed(name: str, directory: Path, forbidden: int, another: str) -> Finding | None:
    """Return a finding where a directory is open to other users; None where it is not, or not there yet."""
    try:
        listed = sorted(exposures(directory, forbidden), key=lambda exposure: not exposure.is_refused)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return Finding(name, "missing", f"{directory} cannot be looked at: {error.strerror}", another)
    if not listed:
        return None
    return Finding(name, "missing" if listed[0].is_refused else "optional",
                   "; ".join(exposure.problem for exposure in listed),
                   "; ".join(dict.fromkeys(exposure.mend or another for exposure in listed)))


def _daemon(explicit: str | None) -> Finding:
    try:
        report = admin.administer(Status(), runtime_dir=explicit, timeout=5.0)
    except WorkerUnavailable:
        return Finding("daemon", "ok", "none runs; a task that needs one starts it", "")
    except VisparkError as error:
        return Finding("daemon", "missing", str(error), "gpu-worker stop, and the next task starts one of this version")
    return Finding("daemon", "ok", f"process {report.pid}, {len(report.sessions)} sessions", "")


def _descriptors() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= _DESCRIPTORS:
        return Finding("open files", "ok", f"up to {soft} a process", "")
    return Finding("open files", "missing", f"up to {soft} a process; {_DESCRIPTORS} are needed",
                   f"ulimit -n {min(hard, 65536) if hard > 0 else 65536}")


def _shared_memory() -> Finding:
    """Look at the free memory: partitions travel in memfds, which count as memory and not as files of /dev/shm."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    available = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    free = int(available[1]) * 1024 if available else free
    if free >= _SHARED_MEMORY:
        return Finding("memory", "ok", f"{free / 2**30:.1f} GiB available", "")
    return Finding("memory", "optional", f"{free / 2**30:.2f} GiB available",
                   "end other programs, or bound a session by spark.vispark.memory")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _output(command: list[str]) -> tuple[str | None, str]:
    """Run a command and return its output; None and the reason if it is missing, fails or does not end."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_TOOL_SECONDS,
                             check=False)
    except FileNotFoundError:
        return None, "is not there"
    except OSError as error:
        return None, f"cannot be run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return None, f"has not answered within {_TOOL_SECONDS:g} s"
    output = (ran.stdout + ran.stderr).strip()
    if ran.returncode:
        return None, f"failed: {output.partition(chr(10))[0] or f'status {ran.returncode}'}"
    return output, ""
