"""Parts of the tests that one process each runs under coverage: ``python -m tests.coverage_units FOLDER <IDS``.

Each part is a file of FOLDER, which pytest takes as ``@FILE``. The first parts of all files of tests come before the
second ones, so that a run that is cut short has met all that the tests meet, and those on Spark, which wait for
processes, before the others.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

#: Tests that one process runs of a file, by the folder: those on Spark take a second each, most others milliseconds.
ON_SPARK, OTHERS = 16, 80
_ON_SPARK = ("tests/system/", "tests/chaos/", "tests/mpi/")


def units(lines: Iterable[str]) -> list[list[str]]:
    """Return the ids of each part's tests, in the order in which the parts are to start.

    Examples
    --------
    >>> units(["tests/unit/test_a.py::test_one", "", "tests/system/test_b.py::test_one[x]", "2 tests collected"])
    [['tests/system/test_b.py::test_one[x]'], ['tests/unit/test_a.py::test_one']]
    """
    files: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        path, separator, _ = line.strip().partition("::")
        if separator and path.endswith(".py"):
            files[path].append(line.strip())
    parts: list[tuple[int, bool, str, list[str]]] = []
    for path, tests in files.items():
        is_slow = path.startswith(_ON_SPARK)
        size = ON_SPARK if is_slow else OTHERS
        for start in range(0, len(tests), size):
            parts.append((start // size, not is_slow, path, tests[start:start + size]))
    return [tests for *_, tests in sorted(parts)]


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir()
    for number, tests in enumerate(units(sys.stdin)):
        (folder / f"{number:04}").write_text("\n".join(tests) + "\n")
