"""``vispark tune``: which settings it tries, when it stops, what it keeps, and what it recommends."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from vispark.migrate.cli import main
from vispark.migrate.commands import tune_command
from vispark.migrate.commands.tune_command import MeasuredProgram
from vispark.migrate.errors import NO, UNKNOWN, YES
from vispark.migrate.store.history import History
from vispark.migrate.tune.search import (
    RunFacts,
    Setting,
    SourceCall,
    TuneRun,
    TuneSearch,
    knobs_of,
    recommendations,
    refused,
)
from vispark.migrate.validate.compare import DIFFERS

FACTS = RunFacts("local[2]", 2, 2, (SourceCall(6, "parallelize", 64),), ((7, "array", True, False),),
                 frozenset(["vmap", "reduce"]))


def _measure(seconds: Callable[[Setting], float], facts: RunFacts = FACTS, passes: float = 0.01,
             verdict: Callable[[Setting], str] = lambda setting: "equal"):
    def run(setting: Setting) -> TuneRun:
        ran.append(setting)
        return TuneRun(setting, seconds(setting), (passes,) * 4, verdict(setting), "", facts)
    ran: list[Setting] = []
    return run, ran


def _tuned(measure: Callable[[Setting], TuneRun], runs: int = 6, allowed: frozenset[str] = frozenset(), passes=None):
    return TuneSearch(measure, runs, passes).run(lambda facts: knobs_of(facts, allowed))


def test_the_best_is_kept_and_only_what_changes_is_recommended():
    measure, ran = _measure(lambda setting: {None: 9.0, 2: 4.0, 4: 3.99}[setting.partitions])
    answer = _tuned(measure)
    assert answer.best.setting == Setting(partitions=2) and answer.runs == len(ran) == 5
    assert recommendations(answer) == ["line 6: parallelize: 2 partitions, not 64"]


def test_it_stops_where_nothing_is_better_than_noise():
    measure, ran = _measure(lambda setting: 9.0 + 0.1 * len(ran))
    answer = _tuned(measure)
    assert recommendations(answer) == [] and answer.best is answer.base
    assert [each.said for each in answer.outcomes][:2] == ["slower", "slower"] and len(ran) == 4


@pytest.mark.parametrize("runs", [2, 3, 4])
def test_it_never_runs_more_than_it_may(runs: int):
    measure, ran = _measure(lambda setting: 9.0 / (1 + len(ran)) if len(ran) > 2 else 9.0)
    answer = _tuned(measure, runs)
    assert len(ran) == answer.runs == runs and answer.stopped == f"{runs} runs are done"


def test_a_knob_whose_part_takes_little_is_not_tried():
    measure, ran = _measure(lambda setting: 0.1, passes=9.0)
    answer = _tuned(measure)
    assert len(ran) == 2 and {each.said for each in answer.outcomes} == {
        "not tried: loading takes 0% of the time", "not tried: it changes results: --allow float32"}
    answer = _tuned(measure, allowed=frozenset(["float32"]))
    assert any(setting.float32 for setting in ran)


def test_a_setting_that_fails_or_differs_is_a_result_and_no_end():
    measure, _ = _measure(lambda setting: 9.0 if setting == Setting() else 1.0,
                          verdict=lambda setting: DIFFERS if setting.partitions else "equal")

    def fails(setting: Setting) -> TuneRun:
        return TuneRun(setting, failed="RecordError: no") if setting.blocks else measure(setting)
    answer = _tuned(fails)
    assert [each.said for each in answer.outcomes][:2] == ["its results: differs", "failed: RecordError: no"]
    assert answer.best.setting == Setting()


def test_a_program_that_fails_as_it_is_is_run_once():
    ran = []

    def fails(setting: Setting) -> TuneRun:
        ran.append(setting)
        return TuneRun(setting, failed="ValueError: no")
    assert _tuned(fails).stopped == "the program as it is failed: ValueError: no" and len(ran) == 1


_COUNTS = st.integers(1, 1 << 16)
_FACTS = st.builds(
    RunFacts, st.sampled_from(["local[2]", "local[*]", "local", "spark://m:7077", "yarn"]), st.integers(1, 256),
    _COUNTS, st.lists(st.builds(SourceCall, _COUNTS, st.sampled_from(["parallelize", "textFile"]), _COUNTS),
                      max_size=3).map(tuple),
    st.lists(st.tuples(_COUNTS, st.sampled_from(["array", "dict", "float"]), st.booleans(), st.booleans()),
             max_size=2).map(tuple),
    st.frozensets(st.sampled_from(["vmap", "iterate", "reduce"])),
    st.dictionaries(st.sampled_from(["spark.vispark.snapshotShare", "spark.executor.cores"]), st.just("0")))


@settings(max_examples=300, deadline=None)
@given(_FACTS, st.lists(st.floats(0.01, 10), min_size=20, max_size=20))
def test_every_setting_is_one_that_spark_and_vispark_take(facts: RunFacts, seconds: list[float]):
    times = iter(seconds)
    measure, ran = _measure(lambda setting: next(times), facts)
    answer = _tuned(measure, runs=9, allowed=frozenset(["float32", "no-snapshots"]))
    assert all(refused(setting.conf) == "" and (setting.partitions or 1) > 0 for setting in ran)
    assert answer.best.seconds() <= answer.base.seconds()
    advice = recommendations(answer)
    assert len(advice) == len(set(advice)) or len(facts.sources) + len(facts.cached) > 1
    for source in facts.sources:
        assert f"{source.method}: {source.partitions} partitions, not {source.partitions}" not in " ".join(advice)
    assert not any(name in facts.conf and facts.conf[name] == value for name, value in answer.best.setting.conf)


PROGRAM = "w = rdd.map(f).reduce(g)\n"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VISPARK_HISTORY", str(tmp_path / "history.db"))
    (tmp_path / "job.py").write_text(PROGRAM)
    return tmp_path / "job.py"


@pytest.mark.parametrize(("facts", "failed", "status"), [
    (FACTS, "", YES), (replace(FACTS, operations=frozenset()), "", NO), (FACTS, "ValueError: no", UNKNOWN)])
def test_the_command_keeps_its_runs(script: Path, monkeypatch: pytest.MonkeyPatch, facts: RunFacts, failed: str,
                                    status: int):
    def run(self: MeasuredProgram, setting: Setting) -> TuneRun:
        return TuneRun(setting, 9.0 if setting.partitions is None else 3.0, (0.5,), "equal", failed, facts)
    monkeypatch.setattr(MeasuredProgram, "run", run)
    ended = CliRunner().invoke(main, ["tune", "--json", "--runs", "9", str(script)])
    assert ended.exit_code == status, ended.output
    document = json.loads(ended.output)
    assert document["recommended"] == ([] if failed else ["line 6: parallelize: 2 partitions, not 64"])
    runs = History().whole_job(1)["runs"]
    assert [each["kind"] for each in runs] == ["tune"] * len(runs)
    assert [each["state"] for each in runs] == (["failed"] if failed else ["done"] * document["runs"])
    if not failed:
        assert runs[2]["conf"] == {"partitions": 2} and runs[2]["seconds"] == 3.5
    text = CliRunner().invoke(main, ["tune", "--no-history", str(script)])
    assert text.exit_code == status
    assert ("failed" if failed else "recommended") in text.output


def test_a_run_that_does_not_end_in_time_has_failed(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def late(*_: object, **__: object) -> None:
        raise tune_command.subprocess.TimeoutExpired("x", 3)
    monkeypatch.setattr(tune_command.subprocess, "run", late)
    run = MeasuredProgram(script, (), tmp_path, 5, timeout=3.0).run(Setting())
    assert run.failed == "it did not end within 3 s"
