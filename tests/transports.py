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
    """Return the files of tests that start Spark."""
    files = sorted([*ROOT.glob("tests/system/test_*.py"), *ROOT.glob("tests/chaos/test_*.py")])
    return [path.relative_to(ROOT) for path in files if _SPARK.search(path.read_text())]


def outcome(path: Path, way: str) -> str:
    """Return the counts that pytest prints of a file."""
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(path)]
    run = subprocess.run(command, env=os.environ | {TRANSPORT: way}, cwd=ROOT, capture_output=True, text=True)
    if run.returncode:
        print(run.stdout, file=sys.stderr)
    *_, last = run.stdout.strip().splitlines() or ["nothing"]
    return re.sub(r" in [\d.]+s.*", "", last)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, default=with_spark())
    parser.add_argument("--ways", nargs="+", choices=("unix", "tcp", "relay"), default=("tcp", "relay"))
    options = parser.parse_args()
    print(f"| tests | {' | '.join(options.ways)} |\n|---|{'---|' * len(options.ways)}")
    for path in options.files:
        counts = [outcome(path, way) for way in options.ways]
        print(f"| `{path}` | {' | '.join(counts)} |", flush=True)


if __name__ == "__main__":
    main()
