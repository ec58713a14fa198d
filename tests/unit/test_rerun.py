"""The end of .ci/test: which tests passed only when they were run again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.rerun import failed_in, mended

ROOT = Path(__file__).parents[2]
REPORT = """<testsuites><testsuite>
<testcase classname="tests.unit.test_a" name="test_good"/>
<testcase classname="tests.unit.test_a" name="test_bad[1]"><failure message="no"/></testcase>
<testcase classname="tests.system.test_b" name="test_torn"><error message="no"/></testcase>
<testcase classname="tests.system.test_b" name="test_torn"><failure message="no"/></testcase>
</testsuite></testsuites>"""


def test_names_of_a_report(tmp_path: Path):
    (tmp_path / "report.xml").write_text(REPORT)
    assert failed_in(tmp_path / "report.xml") == ["tests/unit/test_a.py::test_bad[1]",
                                                  "tests/system/test_b.py::test_torn"]


def test_those_that_failed_again_are_left_out(tmp_path: Path):
    (tmp_path / "report.xml").write_text(REPORT)
    first = failed_in(tmp_path / "report.xml")
    assert mended(first, []).splitlines()[0] == "2 tests passed only when they were run again:"
    assert mended(first, first) == "no test passed only when it was run again"
    cache = tmp_path / ".pytest_cache/v/cache"
    cache.mkdir(parents=True)
    (cache / "lastfailed").write_text('{"tests/system/test_b.py::test_torn": true}')
    ran = subprocess.run([sys.executable, str(ROOT / "tests/rerun.py"), "report.xml"], cwd=tmp_path, text=True,
                         capture_output=True, check=True)
    assert ran.stdout == "1 test passed only when it was run again:\n  tests/unit/test_a.py::test_bad[1]\n"
