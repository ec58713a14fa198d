"""The store of jobs and ``vispark report``: migrations, two writers, refusals, figures of validated jobs only."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from vispark.migrate.cli import main
from vispark.migrate.errors import UNKNOWN, YES, HistoryError
from vispark.migrate.report.job_page import page
from vispark.migrate.store import history as history_module
from vispark.migrate.store.history import MIGRATIONS, History
from vispark.migrate.store.validations import keep_validation
from vispark.migrate.validate.compare import Tolerance
from vispark.migrate.validate.validation import StatementResults, validated

SOURCE = "data = sc.parallelize(range(9)).cache()\nfor _ in range(3):\n    w = data.map(lambda x: x * 2).sum()  # <&\n"


class _Entered:
    """Context manager that has been entered."""

    def __init__(self, value, stack):
        self._value, self._stack = value, stack

    def __enter__(self):
        return self._value

    def __exit__(self, *error):
        return self._stack.__exit__(*error)


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    monkeypatch.setenv("VISPARK_HISTORY", str(tmp_path / "data" / "history.db"))
    return History()


def _validated(tmp_path: Path, history: History, other: float = 2.0) -> int:
    cpu, gpu = tmp_path / "job.py", tmp_path / "port.py"
    cpu.write_text(SOURCE)
    gpu.write_text(SOURCE.replace(".cache()", '.cache("GPU")'))
    runs = [[StatementResults(("", "w"), 3, (1.0, 2.0, value), times)]
            for value, times in ((2.0, (1.0, 2.0, 3.0)), (other, (0.1, 0.2, 0.3)))]
    validation = validated(runs[0], runs[0], runs[1], Tolerance())
    return keep_validation(history, cpu, gpu, type(validation)(validation.statements, (), (), 9.0, 3.0))


def _run(*words: str):
    return CliRunner().invoke(main, ["report", *words])


def test_the_file_is_its_users_alone_and_of_this_version(history: History):
    assert history.path.stat().st_mode & 0o777 == 0o600
    connection = sqlite3.connect(history.path)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_store_of_an_older_version_keeps_its_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(history_module, "MIGRATIONS", MIGRATIONS[:1])
    connection = sqlite3.connect(History(tmp_path / "old.db").path)
    connection.execute("INSERT INTO job (name, script, created) VALUES ('a', 'a.py', 1)")
    connection.commit()
    connection.close()
    monkeypatch.undo()
    assert History(tmp_path / "old.db").whole_job(1)["source"] == ""


def test_a_newer_store_is_refused(history: History):
    connection = sqlite3.connect(history.path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(HistoryError, match="version 99, which a newer vispark wrote"):
        History()
    ended = _run("list")
    assert ended.exit_code == UNKNOWN and ended.output.count("\n") == 1


def test_a_notebook_under_another_name_is_named(tmp_path: Path):
    (tmp_path / "job.py").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    ended = CliRunner().invoke(main, ["qualify", "--no-history", str(tmp_path / "job.py")])
    assert ended.exit_code == UNKNOWN and "is a notebook by what it holds: name it job.ipynb" in ended.output


def test_an_answer_is_printed_where_the_store_does_not_take_it(tmp_path: Path, history: History):
    with contextlib.closing(sqlite3.connect(history.path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    (tmp_path / "job.py").write_text(SOURCE)
    ended = CliRunner().invoke(main, ["qualify", "--json", str(tmp_path / "job.py")])
    assert ended.exit_code == YES and "a newer vispark wrote" in ended.stderr, "the answer counts"
    assert len(json.loads(ended.stdout)["loops"]) == 1


@pytest.mark.parametrize("content", [b"no store" * 200, b"SQLite format 3\0" + b"\1" * 4000])
def test_another_file_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / "x.db").write_bytes(content)
    with pytest.raises(HistoryError, match=r"x\.db"):
        History(tmp_path / "x.db")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryError, match="cannot be written"):
        History(tmp_path / "file" / "history.db")


def test_a_full_disk_is_an_error_and_the_store_stays_whole(history: History, monkeypatch: pytest.MonkeyPatch):
    first = history.job("a.py")
    connected = History._connected

    def small(self):
        context = connected(self)
        connection = context.__enter__()
        connection.execute(f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').fetchone()[0]}")
        stack = contextlib.ExitStack()
        stack.push(context.__exit__)
        return _Entered(connection, stack)

    monkeypatch.setattr(History, "_connected", small)
    with pytest.raises(HistoryError, match="full"):
        history.job("b.py", source="x" * 10 ** 6)
    monkeypatch.undo()
    assert [each["id"] for each in history.jobs()] == [first]


def test_two_writers_lose_nothing(history: History):
    def write(writer: int) -> None:
        own = History(history.path)
        for number in range(20):
            own.add_run(own.job(f"{number % 4}.py"), application=f"{writer}-{number}", seconds=1.0)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert history.count() == 4 and sum(each["runs"] for each in history.jobs()) == 40


def test_a_run_belongs_to_a_job_and_is_there_once(history: History):
    with pytest.raises(HistoryError, match="FOREIGN KEY"):
        history.add_run(7)
    job = history.job("a.py")
    history.add_run(job, application="app-1")
    with pytest.raises(HistoryError, match="UNIQUE"):
        history.add_run(job, application="app-1")
    with pytest.raises(TypeError, match="run has no minutes"):
        history.add_run(job, minutes=1)


def test_a_run_that_ended_is_changed(history: History):
    run = history.add_run(history.job("a.py"))
    history.change_run(run, state="done", seconds=2.0)
    assert history.whole_job(1)["runs"][0]["state"] == "done"


def test_retention_keeps_the_newest_and_says_whose_logs_go(history: History):
    job = history.job("a.py")
    for number in range(5):
        run = history.add_run(job, started=float(number), log=f"log-{number}")
        history.add_loop(run, file="a.py", line=1, passes=2)
    gone: list[str] = []
    assert history.prune(runs=2, is_gone=gone.append) == 3 and sorted(gone) == ["log-0", "log-1", "log-2"]
    assert [len(run["loops"]) for run in history.whole_job(job)["runs"]] == [1, 1]
    assert json.loads(_run("prune", "--days", "30", "--json").output) == {"deleted": 2}
    assert history.whole_job(job)["runs"] == []


def test_jobs_come_in_pages_and_by_name(history: History):
    for number in range(7):
        history.job(f"/x/{number}-means.py")
    assert [each["name"] for each in history.jobs(2, 1)] == ["5-means.py", "4-means.py"]
    assert [each["name"] for each in history.jobs(search="3-M")] == ["3-means.py"]


def test_a_validated_job_has_figures_and_advice(tmp_path: Path, history: History):
    job = _validated(tmp_path, history)
    assert "x3" in _run("job", str(job)).output and "a pass, line 3: 1 s -> 100 ms, x10" in _run("job", str(job)).output
    assert re.search(r"job\.py +2 +9 s +3 s +equal", _run("list").output)
    document = json.loads(_run("export").output)["jobs"][0]
    assert document["validations"][0]["verdict"] == "equal"
    assert {"vmap", "cache"} & {each["verdict"] for each in document["advice"]}


def test_of_a_job_that_differs_no_speed_up_is_said(tmp_path: Path, history: History):
    job = _validated(tmp_path, history, other=2.5)
    assert "x3" not in _run("job", str(job)).output and "differs" in _run("list").output
    text = page(history.whole_job(job))
    assert "pass 3: the value: 2.0 and 2.5" in text and "x3" not in text


def test_the_page_says_why_something_is_not_known(tmp_path: Path, history: History):
    job = _validated(tmp_path, history)
    runs = [[StatementResults(("", "w"), 3, (value,))] for value in (1.0, 7.0, 1.5)]
    unknown = validated(*runs, Tolerance())
    keep_validation(history, tmp_path / "job.py", tmp_path / "port.py", type(unknown)(
        unknown.statements, notes=("line 2: x: not compared",)))
    text = page(history.whole_job(job))
    assert "<td>on the CPU it differs from itself when its partitions are dealt anew</td>" in text
    assert "<li>line 2: x: not compared</li>" in text


def test_the_page_has_no_script_and_nothing_from_elsewhere(tmp_path: Path, history: History):
    job = _validated(tmp_path, history)
    ended = _run("html", str(job), "--out", str(tmp_path / "job.html"))
    text = (tmp_path / "job.html").read_text()
    assert ended.exit_code == YES
    assert not re.search(r"<script|https?:|src=|@import|url\(|<link", text)
    assert "&lt;&amp;" in text and "+data = sc.parallelize(range(9)).cache(&#34;GPU&#34;)" in text


def test_a_job_that_is_not_there_is_named(history: History):
    ended = _run("job", "5")
    assert ended.exit_code == UNKNOWN and "no job 5" in ended.output
