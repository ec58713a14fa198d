"""State of the JVM that the contexts of this process share: a test that fails since it ended says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

#: What ends a JVM of Spark's with such a status, beside signals.
MEANINGS: Mapping[int, str] = {
    0: "its standard input was closed: by who started it, or by a descriptor of this process that was closed twice",
    52: "an error that no thread caught (Spark's UNCAUGHT_EXCEPTION)",
    53: "an error while one was told of (Spark's UNCAUGHT_EXCEPTION_TWICE)",
    50: "no memory (Spark's OOM)",
    56: "the driver did not answer heartbeats (Spark's HEARTBEAT_FAILURE)"}


def end_of(process: subprocess.Popen[bytes]) -> str:
    """Return the reason why a JVM has ended; "" while it runs."""
    status = process.poll()
    if status is None:
        return ""
    number = -status if status < 0 else status - 128
    if number in set(signal.Signals):
        reason = f"signal {signal.Signals(number).name}"
    else:
        reason = MEANINGS.get(status, "a status without a meaning of its own")
    crashes = [str(path) for path in Path.cwd().glob(f"hs_err_pid{process.pid}*")]
    return (f"the JVM {process.pid} ended with status {status}: {reason}. Load {os.getloadavg()[0]:.1f}, "
            f"{_available()}, processes killed for memory on this machine: {_killed()}"
            f"{'; see ' + ', '.join(crashes) if crashes else ''}")


def end_of_ours() -> str:
    """Return the reason why the JVM of this process's contexts has ended; "" while it runs, and where there is none."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    process = getattr(getattr(context, "_gateway", None), "proc", None)
    return "" if process is None else end_of(process)


def _available() -> str:
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return f"{int(fields['MemAvailable'].split()[0]) >> 10} MiB of memory free"


def _killed() -> str:
    lines = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return lines.get("oom_kill", "not known")
