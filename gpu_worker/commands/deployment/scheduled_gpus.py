"""GPUs of this machine as Spark's discovery script names them, for who starts workers of Spark."""

from __future__ import annotations

import json
import subprocess

from gpu_worker.commands.deployment.errors import ClusterError
from gpu_worker.system.paths import DISCOVERY_SCRIPT

__all__ = ["DISCOVERY_SCRIPT", "addresses"]

_SECONDS = 30


def addresses() -> list[str]:
    """Return the addresses of this machine's GPUs.

    Raises
    ------
    ClusterError
        If the script fails; the message has its words.
    """
    try:
        result = subprocess.run(["/bin/sh", str(DISCOVERY_SCRIPT)], capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{DISCOVERY_SCRIPT} does not end within {_SECONDS} s") from error
    if result.returncode:
        raise ClusterError(f"the GPUs of this machine are not known: {result.stderr.strip()}")
    listed: list[str] = json.loads(result.stdout)["addresses"]
    return listed
