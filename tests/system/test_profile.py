"""A profile of a real program."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark import SparkContext

import vispark
from tests.system.topology import Topology
from tests.system.vrdd_tools import cost, used, warm_up
from tests.unit.test_profiling import trace
from vispark import IN, CompileError, Kernels
from vispark.api.rdds import eager
from vispark.runtime.driver.session import BATCH, Session

#: Jobs that Spark remembers.
REMEMBERED = 8


@pytest.fixture(scope="module")
def sc(local: Topology, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkContext]:
    settings = {"spark.vispark.journal": tmp_path_factory.mktemp("journal") / "plans.jsonl",
                "spark.vispark.device": "host", "spark.ui.retainedJobs": REMEMBERED,
                "spark.appStateStore.asyncTracking.enable": False}      # what is too much is forgotten at once
    with local.context(settings) as context:
        warm_up(context)
        yield context


def test_a_program_is_broken_down(sc: SparkContext, tmp_path: Path):
    rows = [np.full(64, i, "f4") for i in range(2000)]
    with vispark.profile(tmp_path / "trace.json") as profile:
        x = sc.parallelize(rows, 4).cache("GPU")
        assert x.count() == 2000
        doubled = x.vmap(lambda p: 2 * p).cache()
        total = doubled.reduce(lambda a, b: a + b)
        assert x.map(len).collect() == [64] * 2000
    assert total[0] == 2 * sum(range(2000))
    for kind in ("parse", "transport", "host-to-device", "kernel", "compile", "python", "scheduling", "driver"):
        assert profile.seconds[kind] > 0, kind
    assert profile.seconds["exchange"] == 0
    assert sum(profile.seconds.values()) == pytest.approx(profile.total)
    worker, = {event.track for event in profile.events}
    spans = trace(tmp_path / "trace.json", None)
    assert {worker, "Spark jobs", "Spark stages", "Spark tasks"} <= {span["track"] for span in spans}
    assert {"vmap lambda: kernel", "parse", "python"} <= {span["name"] for span in spans}
    assert len(profile.table().splitlines()) == len(profile.seconds) + 1


def test_sparks_pages_name_the_users_line_of_each_job(sc: SparkContext):
    """Run jobs that load, that hand back, and that carry on with an RDD of Spark's."""
    x = sc.parallelize([float(i) for i in range(100)], 3).cache("GPU")
    sites = []
    for action in (lambda: x.count(), lambda: x.filter(lambda v: v > 3).count(), lambda: x.recv().take(1),
                   lambda: x.vmap(lambda v: (v, v)).groupByKey().count()):
        before = set(_jobs(sc))
        action()
        sites += [site for job, site in _jobs(sc).items() if job not in before]
    assert len(sites) > 2 and all(f"at {__file__}:" in site for site in sites), sites


def _jobs(sc: SparkContext) -> dict[int, str]:
    """Return the names that Spark's page of jobs has for those that it remembers."""
    sc._jsc.sc().listenerBus().waitUntilEmpty()
    jobs = sc._jsc.sc().statusStore().jobsList(None)
    return {jobs.apply(place).jobId(): jobs.apply(place).name() for place in range(jobs.size())}


def test_the_time_is_known_by_the_users_lines(sc: SparkContext):
    with vispark.profile() as profile:
        x = sc.parallelize([float(i) for i in range(100)], 3).cache("GPU")
        x.count()
        assert x.vmap(lambda v: v * v).sum() == 328350
    lines = profile.lines()
    assert {Path(place).name.partition(":")[0] for place in lines if place} == {Path(__file__).name}
    assert sum(sum(kinds.values()) for kinds in lines.values()) == pytest.approx(profile.total)
    assert any("kernel" in kinds for kinds in lines.values())


def test_a_journal_has_a_line_for_each_answer(sc: SparkContext):
    x = sc.parallelize([float(i) for i in range(100)], 3).cache("GPU")
    x.count()
    before = len(_journal(sc))
    assert x.vmap(lambda v: v * v).sum() == 328350
    assert len(x.vmap(lambda v: 2 * v).collect()) == 100
    for _ in range(3):
        x = x.vmap(lambda v: v + 1).cache("GPU")    # sent ahead
    assert x.sum() == 5250
    first, second, *ahead, _ = _journal(sc)[before:]
    assert [each["line"].rpartition("# ")[2] for each in ahead] == ["sent ahead"] * 3
    assert all(each["seconds"] < 1e-3 and each["partitions"] == 3 for each in ahead)      # nobody waited for them
    assert first["operations"][0] == "vmap lambda" and "test_profile.py:" in first["line"]
    assert first["line"].endswith("assert x.vmap(lambda v: v * v).sum() == 328350")
    assert first["partitions"] == 3 and first["plan"] != second["plan"] and second["bytes"] >= 800
    assert 0 <= first["worker"] <= first["seconds"] + 1e-6 and time.time() - 600 < first["ended"] <= time.time()


def _journal(sc: SparkContext) -> list[dict]:
    path = Path(Session.of(sc).options.journal)
    assert path.stat().st_mode & 0o777 == 0o600
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_is_profiled_gives_the_same(sc: SparkContext):
    x = sc.parallelize([float(i) for i in range(100)], 3).cache("GPU")
    expected = x.vmap(lambda v: v * v).sum()
    for _ in range(4):
        with vispark.profile() as profile:
            assert x.vmap(lambda v: v * v).sum() == expected
        assert profile.seconds["kernel"] > 0
    assert x.vmap(lambda v: v * v).sum() == expected


def halved(x, k):
    return x / 2 + k


def test_a_loop_without_actions_goes_step_by_step(sc: SparkContext):
    # The steps are as without a profile, but that each is waited for; where plans are relayed, each batch.
    steps, x = 3 * BATCH, sc.parallelize([np.zeros((64, 1024)) for _ in range(2)], 2).cache("GPU")
    assert x.count() == 2
    before, relays = used(sc), Session.of(sc).relays
    with vispark.profile() as profile:
        for step in range(steps):
            x = x.vmap(halved, 1.0).cache()
            assert len(x._waiting()) <= BATCH
            assert relays or len([event for event in profile.events if event.kind == "kernel"]) == step + 1
    assert {event.name for event in profile.events} == {", ".join(["vmap halved"] * (BATCH if relays else 1))}
    assert relays or used(sc) < 3.1 * before
    np.testing.assert_allclose(x.collect()[0], 2.0)


def test_a_loop_that_starts_from_what_is_not_loaded_goes_step_by_step(sc: SparkContext):
    x = sc.parallelize([0.0, 0.0], 2).cache("GPU")

    def loop() -> None:
        nonlocal x
        for _ in range(2 * BATCH):
            x = x.vmap(halved, 1.0).cache()
            assert len(list(eager.to_be_kept(x))) <= BATCH

    with vispark.profile():
        assert cost(sc, loop).jobs == 1
    assert x.collect() == pytest.approx([2.0, 2.0])


def test_what_is_wrong_with_a_step_is_told_by_the_action_that_needs_it(sc: SparkContext):
    broken = Kernels('extern "C" __global__ void broken(double* x) { x[0] = nowhere; }')
    x = sc.parallelize([1.0, 2.0], 2).cache("GPU")
    assert x.collect() == [1.0, 2.0]
    with vispark.profile():
        bad = x.exec(broken.broken, IN, grid=1, block=32).cache()
        worse = bad.vmap(halved, 1.0).cache()
        assert x.vmap(halved, 0.0).collect() == [0.5, 1.0]
        for vrdd in (worse, worse, bad):
            with pytest.raises(CompileError, match="nowhere"):
                vrdd.collect()


def test_a_job_within_a_job_counts_once(sc: SparkContext):
    x = sc.parallelize([float(i) for i in range(100)], 3).cache("GPU")
    with vispark.profile() as profile:
        # No fold that workers know: a Spark job, which first loads what it reads.
        assert x.reduce(lambda a, b: a + b if a < 1e300 else b) == sum(range(100))
    assert profile.seconds["scheduling"] > 0
    assert sum(profile.seconds.values()) == pytest.approx(profile.total)


def test_jobs_of_ordinary_rdds_are_broken_down(sc: SparkContext, tmp_path: Path):
    def slowly(numbers):
        time.sleep(0.3)
        return [(number % 3, number) for number in numbers]

    sc.parallelize(range(8), 4).count()     # before the profile: does not count
    with vispark.profile(tmp_path / "trace.json") as profile:
        sums = sc.parallelize(range(1000), 4).mapPartitions(slowly).reduceByKey(lambda a, b: a + b, 2)
        assert sum(total for _, total in sums.collect()) == sums.values().sum() == sum(range(1000))
    assert [len(job.stages) for job in profile.jobs] == [2, 1] and profile.forgotten == 0   # one stage is there already
    assert [len(stage.tasks) for job in profile.jobs for stage in job.stages] == [4, 2, 2]
    assert all(profile.seconds[kind] > 0 for kind in ("jvm", "shuffle", "scheduling", "driver"))
    # Two tasks at a time slept twice.
    assert profile.seconds["python"] > 0.4
    assert sum(profile.seconds.values()) == pytest.approx(profile.total)
    names = {span["name"] for span in trace(tmp_path / "trace.json", None)}
    assert any(name.startswith(f"stage {profile.jobs[0].stages[0].number}: ") for name in names)


def test_jobs_that_spark_has_forgotten_are_counted(sc: SparkContext):
    one = sc.parallelize([1], 1)._jrdd
    with vispark.profile() as profile:
        assert [one.count() for _ in range(REMEMBERED + 4)] == [1] * (REMEMBERED + 4)
    assert 4 <= profile.forgotten < REMEMBERED + 4 and profile.forgotten + len(profile.jobs) == REMEMBERED + 4
    assert sum(profile.seconds.values()) == pytest.approx(profile.total)
