"""Launcher of a daemon, for a client that finds none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from gpu_worker.protocol.errors import WorkerLost, WorkerUnavailable
from gpu_worker.protocol.system import is_refusal, refused
from gpu_worker.system import log
from gpu_worker.system.paths import VARIABLE, RuntimeDirectory

#: How long a daemon that started by itself waits for its next session, in seconds.
IDLE_SECONDS = 600.0

_START_SECONDS = 60.0
_LOG_LINES = 20


def start_from_client(directory: RuntimeDirectory, log_level: str) -> None:
    """Start a detached daemon that ends when it has been idle for long, unless one is running already.

    Raises
    ------
    WorkerUnavailable
        If none can be started; with the last lines of its log.
    WorkerLost
        If it was killed meanwhile.
    """
    command = [sys.executable, "-P", "-m", "gpu_worker", "start", "--runtime-dir", str(directory.path),
               "--idle", f"{IDLE_SECONDS:g}", "--log-level", log_level]
    variables = environment(directory)
    # Spark sets it to the cores of one task; a worker serves the whole node.
    variables.pop("OMP_NUM_THREADS", None)
    try:
        result = subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, timeout=_START_SECONDS, text=True, errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        if isinstance(error, OSError) and is_refusal(error):
            raise refused(error, "a process for a GPU worker") from error
        raise WorkerUnavailable(f"no GPU worker could be started: {error}",
                                detail=log.tail(directory.log, _LOG_LINES)) from error
    if result.returncode == -signal.SIGKILL:
        raise WorkerLost("the daemon was killed while it started")
    if result.returncode:
        lines = result.stdout.strip().splitlines() or [f"status {result.returncode}"]
        raise WorkerUnavailable(f"no GPU worker could be started in {directory.path}: {lines[-1]}",
                                detail="\n".join([*lines[:-1], log.tail(directory.log, _LOG_LINES)]).strip())


def environment(directory: RuntimeDirectory) -> dict[str, str]:
    """Return the environment of a process that must find this package, wherever it was imported from, and
    ``directory``.
    """
    path = [str(Path(__file__).absolute().parents[2])]
    path += [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return os.environ | {VARIABLE: str(directory.path), "PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}
