"""Reading of a large event log: seconds and memory of ``vispark qualify LOG`` in a process of its own.

``python -m benchmarks.event_logs --gigabytes 1``: the log is made first, of tasks as large as Spark 4 writes them.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from vispark.migrate.capture.event_log import read_log

#: Bytes of a task's event beside what is read of it: metrics and accumulables, of which Spark writes some 4 kB.
_PADDING = 3600
#: Tasks of a stage, and what is to be reached of a log of 1 GB.
TASKS, SECONDS, BYTES = 1000, 60.0, 300e6


def events(count: int, padding: int = _PADDING) -> Iterator[dict[str, Any]]:
    """Yield the events of an application whose jobs have a stage of :data:`TASKS` tasks each.

    Parameters
    ----------
    count : int
        Tasks of all jobs.
    padding : int
        Bytes of a task's accumulables, which nobody reads.
    """
    yield {"Event": "SparkListenerApplicationStart", "App Name": "large", "App ID": "app-1", "Timestamp": 0}
    for job in range(-(-count // TASKS)):
        at, stage = 1000 * job, {"Stage ID": job, "Stage Name": "sum at /jobs/large.py:12", "Stage Attempt ID": 0,
                                 "Number of Tasks": TASKS, "Submission Time": 1000 * job, "RDD Info": []}
        yield {"Event": "SparkListenerJobStart", "Job ID": job, "Submission Time": at, "Stage IDs": [job],
               "Stage Infos": [stage], "Properties": {"callSite.short": "sum at /jobs/large.py:12"}}
        yield {"Event": "SparkListenerStageSubmitted", "Stage Info": stage}
        for task in range(min(TASKS, count - job * TASKS)):
            yield {"Event": "SparkListenerTaskEnd", "Stage ID": job, "Stage Attempt ID": 0,
                   "Task End Reason": {"Reason": "Success"},
                   "Task Info": {"Task ID": job * TASKS + task, "Index": task, "Attempt": 0, "Launch Time": at,
                                 "Finish Time": at + 200 + task % 50, "Host": f"host-{task % 16}",
                                 "Accumulables": ["x" * padding]},
                   "Task Metrics": {"Executor Run Time": 150, "Executor CPU Time": 20_000_000, "JVM GC Time": 1}}
        yield {"Event": "SparkListenerStageCompleted", "Stage Info": {**stage, "Completion Time": at + 300}}
        yield {"Event": "SparkListenerJobEnd", "Job ID": job, "Completion Time": at + 310,
               "Job Result": {"Result": "JobSucceeded"}}
    yield {"Event": "SparkListenerApplicationEnd", "Timestamp": 10 ** 9}


def write(path: Path, size: float) -> int:
    """Write a log of about so many bytes, and return the number of its tasks."""
    one = len(json.dumps(list(events(1))[3])) + 1
    count = max(TASKS, int(size / one))
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(each) + "\n" for each in events(count))
    return count


def measured(path: Path) -> dict[str, float]:
    """Return seconds, processor seconds, peak bytes and tasks of one reading in a process of its own."""
    ended = subprocess.run([sys.executable, "-m", "benchmarks.event_logs", "--read", str(path)], check=True,
                           capture_output=True, text=True)
    return dict(json.loads(ended.stdout))


def _read(path: Path) -> dict[str, float]:
    began, processor = time.perf_counter(), time.process_time()
    log = read_log(str(path))
    return {"seconds": time.perf_counter() - began, "processor": time.process_time() - processor,
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0, "jobs": len(log.jobs),
            "tasks": sum(each.tasks for each in log.stages.values())}


@click.command()
@click.option("--gigabytes", type=click.FloatRange(0.01), default=1.0, show_default=True)
@click.option("--read", "read_", type=click.Path(exists=True, path_type=Path), help="Read this log, and print JSON.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="JSON with the figures.")
def main(gigabytes: float, read_: Path | None, out: Path | None) -> None:
    """Print what reading an event log takes."""
    if read_ is not None:
        click.echo(json.dumps(_read(read_)))
        return
    with tempfile.TemporaryDirectory(prefix="vispark-logs-") as folder:
        path = Path(folder) / "large"
        count = write(path, gigabytes * 1e9)
        costs = {"bytes": float(path.stat().st_size), **measured(path)}
    if costs["tasks"] != count:
        raise click.ClickException(f"{costs['tasks']:.0f} tasks were read of {count}")
    enough = costs["seconds"] <= SECONDS * gigabytes and costs["peak"] <= BYTES
    click.echo(f"{costs['bytes'] / 1e9:.2f} GB, {count} tasks: {costs['seconds']:.1f} s, {costs['processor']:.1f} s of "
               f"processors, at most {costs['peak'] / 1e6:.0f} MB: {'enough' if enough else 'too much'}")
    if out is not None:
        out.write_text(json.dumps(costs, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
