"""A run of a program under a profile: a process of its own, started by :mod:`.profile_command`.

``python -m vispark.migrate.record.profile_runner ANSWER TRACE SCRIPT ARGS...``: the answer is JSON.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

from pyspark import SparkContext

from vispark.runtime.profiling.profiler import Profile, profile


def main(answer: str, trace: str, script: str, *args: str) -> None:
    """Run a script under a profile; what it raises is raised again when the profile is written."""
    sys.argv = [script, *args]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    profiled, failed = Profile(), "it did not end"
    try:
        with profile(trace) as profiled:
            try:
                runpy.run_path(script, run_name="__main__")
                failed = ""
            except SystemExit as error:
                failed = f"it ended with status {error.code}" if error.code else ""
                raise
    finally:
        kinds = {kind: seconds for kind, seconds in profiled.seconds.items() if seconds}
        document = {"total": profiled.total, "kinds": kinds, "lines": profiled.lines(), "forgotten": profiled.forgotten,
                    "failed": failed}
        Path(answer).write_text(json.dumps(document), encoding="utf-8")
        if (active := SparkContext._active_spark_context) is not None:
            active.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
