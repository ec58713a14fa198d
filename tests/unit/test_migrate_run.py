"""``vispark run`` and the answers in the store: where it stops, and what a changed script makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pyspark
import pytest
from click.testing import CliRunner

from tests.unit.migrate_run_tools import PORTED, recording, run, verdict
from vispark.migrate.capture.stored_results import opened_results
from vispark.migrate.cli import main
from vispark.migrate.commands import run_command
from vispark.migrate.errors import NO, UNKNOWN, YES, ValidationError, error_line
from vispark.migrate.store.history import History
from vispark.migrate.store.qualifications import keep_port
from vispark.migrate.validate.compare import NOT_KNOWN
from vispark.migrate.validate.unrepeatable import writes

EXAMPLES = Path(pyspark.__file__).parent / "examples/src/main/python"
STAYS = '''
data = sc.parallelize(words).cache()
for _ in range(9):
    n = data.map(lambda w: open(w).read()).count()
'''


@pytest.fixture(autouse=True)
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    monkeypatch.setenv("VISPARK_HISTORY", str(tmp_path / "history.db"))
    return History()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(PORTED)
    return path


@pytest.mark.parametrize(("other", "status", "expected"), [(1.0, YES, "equal"), (2.0, NO, "differs")])
def test_it_ends_with_a_verdict(script: Path, monkeypatch: pytest.MonkeyPatch, other: float, status: int,
                                expected: str):
    recording(script, monkeypatch)
    verdict(monkeypatch, other)
    ended = run(script, PORTED, "--json")
    assert ended.exit_code == status, ended.output
    answer = json.loads(ended.output)
    assert (answer["verdict"], answer["ported"], answer["stopped"]) == (expected, [3], "")
    assert "data.vmap(" in (script.parent / "out" / "job_gpu.py").read_text()
    assert expected in Path(answer["report"]).read_text() and History().jobs()[0]["verdict"] == expected


def test_it_stops_where_nothing_is_ported(script: Path, monkeypatch: pytest.MonkeyPatch):
    script.write_text(STAYS)
    recording(script, monkeypatch)
    ended = run(script, STAYS)
    assert ended.exit_code == NO and ended.output.endswith("stopped: nothing is ported\n")
    assert "not ported" in ended.output and not (script.parent / "out" / "job_gpu.py").exists()


def test_it_does_not_run_a_program_that_writes_again(script: Path, monkeypatch: pytest.MonkeyPatch):
    recording(script, monkeypatch, saves=True)
    ended = run(script, PORTED)
    assert ended.exit_code == UNKNOWN and "not to happen again" in ended.output
    assert "data.vmap(" in History().whole_job(1)["diff"]


@pytest.mark.parametrize("line, reason", [
    ("open('log.txt', 'a').write('once')", "appends to a file"),
    ("Path('log.txt').open(mode='at')", "appends to a file"),
    ("df.write.parquet('t')", "writes a DataFrame"),
    ("df.write.mode('append').format('orc').save('t')", "writes a DataFrame"),
    ("model.write.insertInto('t')", "writes a DataFrame"),
])
def test_what_is_not_to_happen_again_is_found_in_the_text(line: str, reason: str):
    assert list(writes(f"x = 1\n{line}\n")) == [(2, reason)]


@pytest.mark.parametrize("line", ["open('a')", "open('log.txt', 'w')", "open(path, mode)", "Path('a').open()",
                                  "df.write.mode('overwrite').parquet('t')", "df.write.mode('ignore').csv('t')",
                                  "spark.read.parquet('t')", "sys.stdout.write('a')", "np.savetxt('a', x)"])
def test_what_may_happen_again_is_not(line: str):
    assert not list(writes(line))


def test_what_a_program_did_until_it_failed_is_qualified_and_ported(script: Path, monkeypatch: pytest.MonkeyPatch):
    recording(script, monkeypatch, failed="job.py ended with status 3: no points")
    ended = run(script, PORTED, "--json")
    answer = json.loads(ended.output)
    assert (ended.exit_code, answer["ported"], "verdict" in answer) == (UNKNOWN, [3], False)
    assert answer["failed"] == "job.py ended with status 3: no points" and answer["failed"] in answer["stopped"]
    assert answer["recording"] == str(script.parent / "out" / "capture") and Path(answer["report"]).exists()
    assert "data.vmap(" in History().whole_job(1)["diff"]


FAILS = """
from pyspark import SparkContext
SparkContext("local[1]", "fails").parallelize([1]).map(abs)
raise SystemExit(3)
"""


@pytest.mark.slow
def test_the_recording_of_a_program_that_exits_is_there(script: Path, tmp_path: Path):
    script.write_text(FAILS)
    with run_command.recorded(script, (), tmp_path / "capture", tmp_path) as (capture, first):
        assert [each.method for each in capture.calls] == ["map"] and capture.failed == "SystemExit: 3"
        assert "ended with status 3" in first.failed and "[Stage" not in first.failed
    # The one that is there is none of the next run, which ends before it records.
    script.write_text("import os\nos._exit(4)\n")
    with pytest.raises(ValidationError, match="status 4"), \
            run_command.recorded(script, (), tmp_path / "capture", tmp_path):
        pass


@pytest.mark.slow
def test_a_program_that_fails_says_its_last_line(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script.write_text("raise ValueError('no points')\n")
    with pytest.raises(ValidationError, match=r"status 1: ValueError: no points; its output is in .*record\.log"), \
            run_command.recorded(script, (), tmp_path / "capture", tmp_path):
        pass


def test_a_program_that_does_not_end_is_ended(script: Path, tmp_path: Path):
    script.write_text("import time\ntime.sleep(99)\n")
    with pytest.raises(ValidationError, match="did not end within"), \
            run_command.recorded(script, (), tmp_path / "capture", tmp_path, timeout=0.2):
        pass


def test_the_line_that_names_pythons_error_goes_before_the_jvms():
    lines = ["vispark.errors.TaskError: Unauthorized: the runtime directory has mode 0755", "  at job.py",
             "org.apache.spark.api.python.PythonException: An exception was thrown from the Python worker:"]
    assert error_line("\n".join(lines)) == lines[0]


def test_qualify_and_port_are_in_the_report(script: Path):
    assert CliRunner().invoke(main, ["qualify", "--no-history", str(script)]).exit_code == YES
    assert History().count() == 0
    assert CliRunner().invoke(main, ["qualify", str(script)]).exit_code == YES
    assert CliRunner().invoke(main, ["port", str(script)]).exit_code == UNKNOWN
    job = History().whole_job(1)
    assert {"vmap", "fold"} <= {each["verdict"] for each in job["advice"]} and "data.vmap(" in job["diff"]
    assert job["source"] == PORTED


def test_a_changed_script_takes_its_verdict_back(script: Path, history: History):
    job = keep_port(history, script, PORTED, "diff")
    history.add_validation(job, {"verdict": "equal", "statements": []})
    keep_port(history, script, PORTED, "diff")
    assert history.jobs()[0]["verdict"] == "equal"
    keep_port(history, script, PORTED, "another diff")
    assert history.jobs()[0]["verdict"] == NOT_KNOWN
    history.add_validation(job, {"verdict": "equal", "statements": []})
    assert CliRunner().invoke(main, ["qualify", str(script)]).exit_code == YES
    assert history.jobs()[0]["verdict"] == "equal"
    script.write_text(PORTED.replace("9", "8"))
    assert CliRunner().invoke(main, ["qualify", str(script)]).exit_code == YES
    assert history.jobs()[0]["verdict"] == NOT_KNOWN and history.whole_job(job)["diff"] == ""


@pytest.mark.parametrize(("text", "statuses"), [
    (PORTED, {"qualify": YES, "port": UNKNOWN}), (STAYS, {"qualify": NO, "port": NO}),
    (PORTED.replace(".cache()", ""), {"qualify": NO, "port": NO}),
    # What is a function of blocks is known to be one of rows by a recording alone.
    ((EXAMPLES / "logistic_regression.py").read_text(), {"qualify": UNKNOWN, "port": UNKNOWN})])
def test_qualify_says_no_where_port_does(script: Path, text: str, statuses: dict[str, int]):
    script.write_text(text)
    for command, status in statuses.items():
        ended = CliRunner().invoke(main, [command, str(script), "--no-history"])
        assert ended.exit_code == status, ended.output
        assert status == YES or text is PORTED or "not ported: " in ended.output


@pytest.mark.parametrize("failed", ["", "job.py ended with status 3: no points"])
def test_the_run_of_a_job_that_is_not_ported_is_kept_with_the_reason(script: Path, monkeypatch: pytest.MonkeyPatch,
                                                                     failed: str):
    script.write_text(STAYS)
    recording(script, monkeypatch, failed=failed)
    with opened_results(script.parent / "cpu.results") as results:
        for value in (1.0, 2.0, 3.0):
            results.write("result", [0, 4, "", "w"], value)
        results.write("end", [0, 0, "", ""], None)
    run(script, STAYS)
    kept, = History().whole_job(1)["runs"]
    assert (kept["kind"], kept["state"]) == ("cpu", "failed" if failed else "done") and kept["seconds"] > 0
    assert [(each["line"], each["passes"]) for each in kept["loops"]] == [(4, 3)]
    report = CliRunner().invoke(main, ["report", "job", "1"]).output
    assert "not ported: " in report and "3 passes" in report
    assert "not ported: " in (script.parent / "out" / "report.html").read_text()
