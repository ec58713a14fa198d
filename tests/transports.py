"""Runs the tests that use Spark on the ways from the driver to workers, and prints what came of each file.

``python -m tests.transports`` (an hour on two calm cores), or with files and ``--ways relay``; the rows are those of
docs/reference/transports.md. What fails is shown as pytest shows it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.system.topology import TRANSPORT

ROOT = Path(__file__).resolve().parent.parent

#: A file that runs Spark says so by one of these.
_SPARK = re.compile(r"SparkContext|Topology|Arena|pyspark-shell")


def with_spark() -> list[Path]:
    """The files of tests that start Spark."""
    found = sorted([*ROOT.glob("tests/system/test_*.py"), *ROOT.glob("tests/chaos/test_*.py")])
    return [path.relative_to(ROOT) for path in found if _SPARK.search(path.read_text())]


def outcome(path: Path, way: str) -> str:
    """What pytest counts in a file."""
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(path)]
    made = subprocess.run(command, env=os.environ | {TRANSPORT: way}, cwd=ROOT, capture_output=True, text=True)
    if made.returncode:
        print(made.stdout, file=sys.stderr)
    *_, last = made.stdout.strip().splitlines() or ["nothing"]
    return re.sub(r" in [\d.]+s.*", "", last)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, default=with_spark())
    parser.add_argument("--ways", nargs="+", choices=("unix", "tcp", "relay"), default=("tcp", "relay"))
    given = parser.parse_args()
    print(f"| tests | {' | '.join(given.ways)} |\n|---|{'---|' * len(given.ways)}")
    for path in given.files:
        found = [outcome(path, way) for way in given.ways]
        print(f"| `{path}` | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
