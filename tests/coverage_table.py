"""Table of what the tests cover by package: ``python -m tests.coverage_table FILE``, of ``coverage json``."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any


def rows(files: Mapping[str, Any]) -> Iterator[tuple[str, int, float]]:
    """Yield each package's name, its statements, and the percentage of its lines and branches that ran; all at the end.

    A package is the first folder below ``vispark`` or ``gpu_worker``; files that lie in these have theirs together.
    """
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for path, counts in sorted(files.items()):
        of, parts = counts["summary"], PurePath(path).parts
        for name in ("/".join(parts[:2]) if len(parts) > 2 else parts[0], "all"):
            sums[name][0] += of["num_statements"]
            sums[name][1] += of["num_statements"] + of["num_branches"]
            sums[name][2] += of["covered_lines"] + of["covered_branches"]
    for name in sorted(sums, key=lambda name: (name == "all", name)):
        statements, whole, ran = sums[name]
        yield name, statements, 100 * ran / max(whole, 1)


def main(path: str) -> None:
    """Print the table as Markdown."""
    print("| package | statements | % |\n|---|---|---|")
    for name, statements, share in rows(json.loads(Path(path).read_text())["files"]):
        print(f"| `{name}` | {statements:,} | {share:.0f} |")


if __name__ == "__main__":
    main(sys.argv[1])
