"""``python3 -m tests.rerun REPORT`` says which tests of a first run passed only when they were run again.

``REPORT`` is the JUnit file of the first run; what pytest's cache still calls failed did not pass the second time.
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

#: Where pytest notes what failed last.
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def failed_in(report: Path) -> list[str]:
    """Return the names of the tests that failed, or could not be set up or torn down, in a JUnit file."""
    cases = ET.parse(report).getroot().iter("testcase")
    names = [f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}" for case in cases
             if case.find("failure") is not None or case.find("error") is not None]
    return list(dict.fromkeys(names))


def mended(first: list[str], still: list[str]) -> str:
    """Return the lines that say which tests passed only when they were run again.

    Examples
    --------
    >>> print(mended(["tests/a.py::one", "tests/a.py::two"], ["tests/a.py::two"]))
    1 test passed only when it was run again:
      tests/a.py::one
    """
    passed = [name for name in first if name not in still]
    if not passed:
        return "no test passed only when it was run again"
    head = "1 test passed only when it was" if len(passed) == 1 else f"{len(passed)} tests passed only when they were"
    return "\n".join([f"{head} run again:", *(f"  {name}" for name in passed)])


if __name__ == "__main__":
    left = json.loads(LAST_FAILED.read_text()) if LAST_FAILED.exists() else {}
    print(mended(failed_in(Path(sys.argv[1])), list(left)))
