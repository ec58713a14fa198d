"""GPUs that Spark schedules, on a standalone cluster of two nodes whose GPUs are devices of the CPU."""

from __future__ import annotations

import os

import pytest

import vispark
from tests.system.gpu_tools import blocks, check_dealt, gpu_context, held, profile_of_load, ran, task_profile, warm_up
from vispark.errors import DeviceUnavailable, PlanError
from vispark.runtime.driver.session import Session
from vispark.runtime.executor.assigned_gpus import task_addresses

#: The sum of the records of eight partitions.
TOTAL = 1024 * sum(range(8))


@pytest.fixture(scope="module")
def sc(gpu_cluster):
    """Start two executors on each node, with two of its eight GPUs each."""
    with gpu_context(gpu_cluster, 4) as context:
        warm_up(context)
        yield context


@pytest.mark.parametrize("amount", [None, 1, 2, 0.5, 0.25, 0])
def test_partitions_are_dealt_over_the_gpus_of_their_executor(sc, gpu_cluster, tmp_path, amount):
    sent = blocks(sc, tmp_path)
    points = (sent if amount is None else sent.withResources(task_profile(amount))).cache("GPU")
    assert points.map(lambda block: float(block.sum())).sum() == TOTAL
    assert len(list(tmp_path.iterdir())) == 8
    check_dealt(sc, gpu_cluster, tmp_path)
    assert points.vmap(lambda p: p.sum()).sum() == TOTAL
    points.unpersist()


def test_the_sets_of_a_nodes_executors_are_disjoint_and_only_they_are_open(sc, gpu_cluster, tmp_path):
    points = blocks(sc, tmp_path, 16).cache("GPU")
    assert points.count() == 16
    for host, executors in ran(tmp_path).items():
        assigned = [gpu for gpus in executors for gpu in gpus]
        assert len(set(assigned)) == len(assigned) <= 4
        assert set(assigned) <= held(sc, gpu_cluster)[host].keys()
        assert len(held(sc, gpu_cluster)[host]) <= 4
    points.unpersist()


def test_a_profile_before_and_after_cache_is_the_loads(sc, tmp_path):
    profile = task_profile(0.5)
    first = tmp_path / "before"
    first.mkdir()
    before = blocks(sc, first, 4).withResources(profile).cache("GPU")
    assert before.count() == 4 and profile_of_load(sc, first) == profile.id
    directory = tmp_path / "after"
    directory.mkdir()
    after = blocks(sc, directory, 4).cache("GPU").withResources(profile)
    assert after.count() == 4 and profile_of_load(sc, directory) == profile.id
    assert after.map(len).sum() == 4 * 1024
    before.unpersist(), after.unpersist()


def test_two_profiles_of_one_stage_are_an_error_that_names_both(sc, tmp_path):
    one, other = task_profile(0.5), task_profile(1)
    sent = blocks(sc, tmp_path, 2)
    points = sent.cache("GPU")
    assert points.withResources(one) is points and sent.getResourceProfile() is None
    assert points.vmap(lambda p: p.sum()).withResources(one).count() == 2
    for vrdd in (points, points.vmap(lambda p: p.sum()), blocks(sc, tmp_path, 2).withResources(one).cache("GPU")):
        with pytest.raises(PlanError, match=f"has the resource profile {one.id}, .* not also {other.id}"):
            vrdd.withResources(other)
    points.unpersist()


def test_gpu_profile_gives_each_core_its_share(sc, tmp_path):
    profile = vispark.gpu_profile(sc)
    assert (profile.taskResources["cpus"].amount, profile.taskResources["gpu"].amount) == (1, 1)
    assert vispark.gpu_profile(sc, cpus=2).taskResources["gpu"].amount == 2
    assert vispark.gpu_profile(sc, 0.25).taskResources["gpu"].amount == 0.25
    assert blocks(sc, tmp_path, 4).withResources(profile).cache("GPU").count() == 4
    assert profile_of_load(sc, tmp_path) == profile.id


@pytest.mark.parametrize(("gpus", "cpus", "words"), [
    (3, 1, "cannot have 3 GPUs of an executor's 2"),
    (0.75, 1, r"cannot have 0.75 GPUs .*: write 0.5 or less, as 1/n, or a whole number"),
    (0, 1, "cannot have 0 GPUs"),
    (None, 3, "cannot have 3 cores: executors have 2"),
])
def test_a_profile_that_no_executor_meets_is_an_error(sc, gpus, cpus, words):
    with pytest.raises(PlanError, match=words):
        vispark.gpu_profile(sc, gpus, cpus)


def test_the_driver_knows_the_gpus_of_executors(sc, tmp_path):
    blocks(sc, tmp_path, 4).cache("GPU").count()
    known = Session.of(sc).credentials.gpus
    assert known.is_scheduled and known.by_executor["driver"] == ()
    assert sorted(gpus for executor, gpus in known.by_executor.items() if executor != "driver") == sorted(
        [("0", "1"), ("2", "3")] * 2)


def test_addresses_that_are_not_there_are_all_named(gpu_cluster, sc, tmp_path):
    sc.stop()       # the last test that uses it: one context lives at a time
    with gpu_context(gpu_cluster, 2, gpus=4, device="host:2") as other:
        with pytest.raises(DeviceUnavailable,
                           match=r"assigned the GPUs '2', '3', but .* host:2 have the addresses 0 to 1"):
            blocks(other, tmp_path).cache("GPU").count()
        assert blocks(other, tmp_path).count() == 8


def test_two_tasks_of_half_a_gpu_share_it_behind_the_managers_mask(gpu_cluster, tmp_path):
    # The executors' manager shows them the GPUs 7 and 5, which Spark counts from 0.
    conf = {"spark.task.resource.gpu.amount": 0.5, "spark.executorEnv.CUDA_VISIBLE_DEVICES": "7,5"}
    with gpu_context(gpu_cluster, 2, gpus=1, **conf) as sc:
        warm_up(sc)
        assigned = sc.parallelize(range(4), 4).barrier().mapPartitions(
            lambda _: [(os.environ["SPARK_LOCAL_IP"], task_addresses())]).collect()
        assert sorted(assigned) == [(node.host, ("0",)) for node in gpu_cluster.nodes for _ in range(2)]
        points = blocks(sc, tmp_path).cache("GPU")
        assert points.map(lambda block: float(block.sum())).sum() == TOTAL
        assert {gpu for devices in held(sc, gpu_cluster).values() for gpu in devices} == {"7"}
        points.unpersist()


def test_executors_that_got_no_gpu_use_the_cpu_if_asked(gpu_cluster, tmp_path):
    with gpu_context(gpu_cluster, 2, gpus=0, **{"spark.vispark.unassigned": "host:2"}) as sc:
        # As for an application of which other executors, on other nodes, have GPUs.
        Session.of(sc).credentials.gpus.is_scheduled = True
        points = blocks(sc, tmp_path).cache("GPU")
        assert points.map(lambda block: float(block.sum())).sum() == TOTAL
        assert {gpu for devices in held(sc, gpu_cluster).values() for gpu in devices} == {"0", "1"}
        points.unpersist()
