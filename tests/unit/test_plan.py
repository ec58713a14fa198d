"""Records of a program: chains, lineage, and what of an operation a plan depends on."""

from __future__ import annotations

import operator

import numpy as np
import pytest

from vispark import IN, Kernels
from vispark.errors import PlanError
from vispark.plan import ops as plan
from vispark.plan.exec_call import record_exec
from vispark.plan.fold import fold_for_kernel
from vispark.plan.loop_call import record_loop
from vispark.plan.map_call import record_map
from vispark.plan.ops import DatasetId, Lineage, PlanNode, place_of, verify

K = Kernels("__global__ void scale(float* x, float by, const float* w) {}")


def scaled(x, k):
    return k * x


def mapped(*arguments) -> plan.Map:
    return plan.Map(record_map(scaled, arguments))


def executed(by, w, grid=1) -> plan.Exec:
    return plan.Exec(record_exec(K.scale, (IN, by, w), grid=grid, block=32))


def chain(*ops, kept=()) -> plan.LogicalPlan:
    return tuple(PlanNode(op, DatasetId(number, "x") if number in kept else None) for number, op in enumerate(ops))


@pytest.mark.parametrize("one, other, alike", [
    (mapped(2.0), mapped(3.0), True), (mapped(2.0), mapped(2), False), (mapped(2.0), mapped(np.float32(2)), False),
    (mapped(np.zeros(3)), mapped(np.ones(3)), True), (mapped(np.zeros(3)), mapped(np.zeros(4)), False),
    (executed(1.0, np.zeros(3, "f4")), executed(2.0, np.ones(3, "f4")), True),
    (executed(1.0, np.zeros(3, "f4")), executed(1.0, np.zeros(4, "f4")), False),
    (executed(1.0, np.zeros(3, "f4")), executed(1.0, np.zeros(3, "f4"), grid=2), False),
    (plan.FoldInside(fold_for_kernel(operator.add, "")), plan.FoldInside(fold_for_kernel(max, "")), False),
    (plan.ToDevice(), plan.ToDevice(), True), (plan.ToDevice(), plan.ToHost(), False),
    (plan.Keys(), plan.Values(), False),
])
def test_a_key_leaves_out_the_values_of_arguments(one: plan.Op, other: plan.Op, alike: bool):
    assert (one.key == other.key) == alike
    assert hash(one.key) == hash(one.key)
    if alike:
        assert hash(one.key) == hash(other.key)


def test_a_capture_is_a_value_too():
    def closure(step):
        return plan.Map(record_map(lambda x: x * step, ()))

    assert closure(1.0).key == closure(2.0).key
    assert closure(1.0) != closure(2.0)
    assert closure(1.0).key != closure(1).key


@pytest.mark.parametrize("ops, words", [((plan.ToDevice(),), "starts with send"), ((), "starts with send"),
                                        ((plan.Send(), plan.Send()), "in the worker already")])
def test_chains_that_cannot_be_run(ops: tuple[plan.Op, ...], words: str):
    with pytest.raises(PlanError, match=words):
        verify(chain(*ops))


def test_two_results_under_one_number():
    twice = tuple(PlanNode(op, DatasetId(7, "x")) for op in (plan.Send(), plan.ToDevice()))
    with pytest.raises(PlanError, match="the same number"):
        verify(twice)


@pytest.mark.parametrize("ops, place", [
    ((plan.Send(),), "host"), ((plan.Send(), plan.ToDevice()), "device"),
    ((plan.Send(), plan.ToDevice(), plan.Values()), "device"), ((plan.Send(), mapped(1.0), plan.ToHost()), "host"),
    ((plan.Send(), plan.Values()), "host")])
def test_where_a_result_lies(ops: tuple[plan.Op, ...], place: str):
    assert place_of(chain(*ops)) == place


@pytest.mark.slow
def test_lineage_of_a_loop_stays_short():
    step, other = (mapped(2.0),), (mapped(3.0),)
    link = Lineage((plan.Send(), plan.ToDevice()))
    for _ in range(100_000):
        link = link.extended((mapped(2.0),))
    link = link.extended(other).extended(step)
    assert (link.ops, link.before.ops, link.before.before.times) == (step, other, 100_000)
    operations = link.newest_first()
    assert [next(operations) for _ in range(3)] == [*step, *other, *step]
    assert sum(1 for _ in operations) == 100_001


def test_lineage_of_a_loop_with_snapshots_stays_short():
    """Keep a link for each snapshot that may be of use, as long as that is known, and no more."""
    step, there = (mapped(2.0),), {0}
    link = Lineage((plan.Send(), plan.ToDevice()))
    for number in range(1, 10_001):
        saved = DatasetId(number, "a snapshot") if number % 10 == 0 else None
        if saved:
            there.clear()
            there.update((number - 10, number))
        link = link.extended(step, saved, lambda saved: saved.number in there)
    links = [link]
    while links[-1].before:
        links.append(links[-1].before)
    assert len(links) <= 5
    nodes = list(link.nodes())
    assert len(nodes) == 10_002
    snapshots = [(place, node.saved.number) for place, node in enumerate(nodes) if node.saved]
    assert [each for each in snapshots if each[1] in there] == [(0, 10_000), (10, 9_990)]


def test_parts_of_a_loop_are_one_link():
    spec = record_loop(scaled, (2.0,), 1000, None, 10, False)
    whole = Lineage((plan.Send(),)).extended((plan.Iterate(spec),))
    link, done, count = Lineage((plan.Send(),)), 0, 0
    while done < 1000:
        count = min(count + 7, 1000 - done)
        saved = DatasetId(done, "a snapshot") if count % 5 == 0 else None
        link = link.extended((plan.Iterate(spec.part(count, done)),), saved, lambda saved: False)
        done += count
    steps = [node.op.spec.steps for node in link.nodes() if isinstance(node.op, plan.Iterate)]
    assert sum(steps) == 1000 and len(steps) <= 8
    text = plan.describe(tuple(reversed(list(link.nodes()))))
    assert text == plan.describe(tuple(reversed(list(whole.nodes()))))


def test_lineage_of_several_operations_a_step():
    link = Lineage((plan.Send(),)).extended((plan.ToDevice(), mapped(1.0))).extended((plan.ToDevice(), mapped(1.0)))
    assert [str(op) for op in link.newest_first()] == ["vmap scaled", "htod", "vmap scaled", "htod", "send"]


def test_a_lineage_in_short_is_all_of_its_operations():
    link = Lineage((plan.Send(), plan.ToDevice()))
    for value in (1.0, 1.0, 1.0, 2.0, 1.0):
        link = link.extended((plan.ToHost(), mapped(value)))
    assert not link.reaches
    link = link.extended((plan.HaloAppend(),), DatasetId(1, "a snapshot")).extended((mapped(3.0),))
    assert link.reaches and link.before.reaches and len(link.compressed()) == 6
    operations = [node.op for nodes, times in link.compressed() for _ in range(times) for node in nodes]
    assert operations[::-1] == list(link.newest_first())


def test_describe_shows_steps_that_are_repeated_once():
    step = plan.HaloAppend(), mapped(1.0)
    text = plan.describe(chain(plan.Send(), plan.ToDevice(), *step * 400, plan.ToHost(), kept=(3,)))
    assert [line.strip() for line in text.splitlines()] == [
        "dtoh", "399 times:", "vmap scaled", "halo_append", "vmap scaled  [cached as VRDD 3 on device]", "halo_append",
        "htod", "send"]


def test_describe_shows_what_is_kept_where():
    text = plan.describe(chain(plan.Send(), plan.ToDevice(), mapped(1.0), kept=(1,)))
    assert text.splitlines() == ["vmap scaled", "  htod  [cached as VRDD 1 on device]", "    send"]
