"""``vispark run`` whose store, port or files fail in the middle: what was found until then is printed and kept."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.unit.migrate_run_tools import PORTED, recording, run, verdict
from vispark.migrate.cli import main
from vispark.migrate.commands import run_command
from vispark.migrate.errors import UNKNOWN, YES, OutputError, ValidationError
from vispark.migrate.store import history as stores
from vispark.migrate.store.history import History
from vispark.migrate.store.run_store import RunStore


@pytest.fixture
def store_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VISPARK_HISTORY", str(tmp_path / "mine" / "history.db"))
    return History().path


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "job.py"
    path.write_text(PORTED)
    recording(path, monkeypatch)
    verdict(monkeypatch, 1.0)
    return path


def _while_validated(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Have something happen while the port runs."""
    validate = run_command.validate
    monkeypatch.setattr(run_command, "validate", lambda *args, **named: (action(), validate(*args, **named))[1])


def _has_all(ended: Result, script: Path) -> None:
    """See that diff, verdict and report are printed, and in files."""
    folder = script.parent / "out"
    assert ended.exit_code == YES, ended.output
    assert all(each in ended.output for each in ("== qualify", "+    w -= data.vmap(", "== validate", "\nequal\n"))
    assert ended.output == (folder / "run.txt").read_text()
    report = (folder / "report.html").read_text()
    assert "equal" in report and "data.vmap(" in report and "data.vmap(" in (folder / "job_gpu.py").read_text()


@pytest.fixture
def writer(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlite3.Connection]:
    """Open the store for another writer, which holds it once it begins a transaction."""
    monkeypatch.setattr(stores, "BUSY_SECONDS", 0.1)
    with sqlite3.connect(store_path, isolation_level=None, check_same_thread=False) as connection:
        yield connection
    connection.close()


def test_a_store_that_another_one_holds_costs_no_answer(script: Path, writer: sqlite3.Connection,
                                                        monkeypatch: pytest.MonkeyPatch):
    _while_validated(monkeypatch, lambda: writer.execute("BEGIN IMMEDIATE"))
    ended = run(script, PORTED)
    _has_all(ended, script)
    beside = script.parent / "out" / "history.db"
    assert f"database is locked; this run is in it with VISPARK_HISTORY={beside}" in ended.output
    monkeypatch.setenv("VISPARK_HISTORY", str(beside))
    listed = CliRunner().invoke(main, ["report", "job", "1", "--json"])
    assert json.loads(listed.output)["validations"][-1]["verdict"] == "equal"


def test_a_store_that_is_damaged_costs_no_answer(script: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch):
    def damage() -> None:
        for beside in ("-wal", "-shm"):
            store_path.with_name(store_path.name + beside).unlink(missing_ok=True)
        store_path.write_bytes(b"no store any more" * 1000)
    _while_validated(monkeypatch, damage)
    _has_all(run(script, PORTED), script)


def test_a_full_disk_costs_no_text(script: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Neither store can be written, nor any file but the port."""
    def full(*_: object) -> None:
        raise OutputError("report.html cannot be written: No space left on device")

    def fill() -> None:
        store_path.write_bytes(b"no store any more" * 1000)
        monkeypatch.setattr(RunStore, "_other", lambda *_: None)
        monkeypatch.setattr(run_command, "write_file", full)
    _while_validated(monkeypatch, fill)
    ended = run(script, PORTED)
    assert ended.exit_code == YES and "+    w -= data.vmap(" in ended.output and "\nequal\n" in ended.output
    assert "vispark report has not got it" in ended.output and "No space left on device" in ended.output


def test_a_port_that_fails_costs_no_text(script: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fails() -> None:
        raise ValidationError("job_gpu.py ended with status 1: KeyError: 3")
    _while_validated(monkeypatch, fails)
    ended = run(script, PORTED)
    assert ended.exit_code == UNKNOWN and "+    w -= data.vmap(" in ended.output
    assert ended.output.endswith("stopped: job_gpu.py ended with status 1: KeyError: 3\n")
    report = (script.parent / "out" / "report.html").read_text()
    assert ".vmap" in report and "data.vmap(" in History().whole_job(1)["diff"]


def test_a_trace_that_cannot_be_written_is_no_traceback(script: Path, store_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch):
    def keep(*_: object) -> None:
        raise run_command.HistoryError("the trace run-1.json cannot be written: No space left on device")
    monkeypatch.setattr("vispark.migrate.store.validations.keep_trace", keep)
    ended = run(script, PORTED)
    assert ended.exit_code == YES and "No space left on device" in ended.output


@pytest.mark.parametrize("command", ["qualify", "port"])
def test_an_answer_that_is_not_kept_is_an_answer(script: Path, store_path: Path, command: str):
    plain = CliRunner().invoke(main, [command, "--no-history", str(script)])
    store_path.write_bytes(b"no store any more" * 1000)
    ended = CliRunner().invoke(main, [command, str(script)])
    assert (ended.exit_code, ended.stdout) == (plain.exit_code, plain.stdout)
    assert "not kept for vispark report" in ended.stderr and plain.stderr == ""
