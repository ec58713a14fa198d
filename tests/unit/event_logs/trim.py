"""Trims the event log of a run for the tests: ``python trim.py LOG >kmeans-4.jsonl``, of Spark's own kmeans.py.

Takes out what holds the machine's paths and settings and what nobody reads, so that a log is some kilobytes.
"""

from __future__ import annotations

import json
import sys

from vispark.migrate.capture.event_log_files import LogLines

_DROPPED = ("Accumulables", "RDD Info", "Details", "Task Executor Metrics", "Executor Info", "Properties")


def _trimmed(value: object) -> object:
    if isinstance(value, dict):
        return {name: _trimmed(each) for name, each in value.items() if name not in _DROPPED}
    if isinstance(value, list):
        return [_trimmed(each) for each in value]
    if isinstance(value, str) and " at /" in value:
        return f"{value.partition(' at /')[0]} at /jobs/{value.rpartition('/')[2]}"
    return value


def main(path: str) -> None:
    for line in LogLines(path):
        event = json.loads(line)
        if event["Event"] in ("SparkListenerEnvironmentUpdate", "SparkListenerTaskStart") or "sql" in event["Event"]:
            continue
        site = (event.get("Properties") or {}).get("callSite.short")
        trimmed = _trimmed(event) | ({"Properties": {"callSite.short": _trimmed(site)}} if site else {})
        print(json.dumps(trimmed, separators=(",", ":")))


if __name__ == "__main__":
    main(sys.argv[1])
