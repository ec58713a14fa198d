"""Costs of asking: requests, plans and actions on tiny cached data, against Spark jobs that do nothing."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
from pyspark import SparkContext

from benchmarks.measure import Case, Series, interleave
from benchmarks.points import FEATURES, Fused, Points
from benchmarks.regression import one_pass
from benchmarks.results import Group
from gpu_worker.client.connection import Client, connect
from gpu_worker.protocol.messages import Input, LoadStep, Plan, Report, Run
from gpu_worker.protocol.plans import sealed
from vispark import IN, OUT, VRDD, Kernels
from vispark.runtime.driver.session import Session

EMPTY_JOB = "Spark: an empty job"

_TWICE = Kernels("""extern "C" __global__ void twice(const float* x, float* y, int n)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 2 * x[i]; }""", file="twice.cu")

#: Quick ones are run this often for each Spark job.
_QUICK = 10


def run(sc: SparkContext, partitions: int, fused: Fused, jobs: int, done: Callable[[str], None]) -> Group:
    """Measure; ``jobs`` is the number of samples of a Spark job, and ten times as many of everything else."""
    group = Group(f"latency, {partitions} partitions", {
        "partitions": partitions, "records": 1000, "dtype": "float32", "samples_of_jobs": jobs,
        "samples_of_requests": jobs * _QUICK}, tail=True)
    numbers = [np.float32(i) for i in range(1000)]
    held = sc.parallelize(numbers, partitions).cache("GPU")
    plain = sc.parallelize(numbers, partitions).cache()
    assert held.collect() == plain.collect()
    with ExitStack() as stack:
        quick = _quick(sc, held, fused, stack)
        slow = [Case(EMPTY_JOB, lambda: sc.parallelize(range(partitions), partitions).foreach(bool), repeat=False),
                Case("Spark: count() of cached data", plain.count, against=(EMPTY_JOB,), repeat=False),
                Case("Spark: sum() of cached data", lambda: plain.reduce(operator.add), against=(EMPTY_JOB,),
                     repeat=False)]
        rounds: list[list[Series]] = []
        for index in range(jobs):
            rounds.append(interleave(quick, _QUICK, warm_up=3 if index == 0 else 0, done=done)
                          + interleave(slow, 1, warm_up=3 if index == 0 else 0, done=done))
        group.series = [_joined(case, rounds) for case in [*quick, *slow]]
    held.unpersist()
    plain.unpersist()
    return group


def _joined(case: Case, rounds: list[list[Series]]) -> Series:
    samples = [sample for series in rounds for each in series if each.name == case.name for sample in each.samples]
    return Series(case.name, tuple(samples), against=case.against)


def _quick(sc: SparkContext, held: VRDD, fused: Fused, stack: ExitStack) -> list[Case]:
    session = Session.of(sc)
    number = max(session.residencies)
    points = Points(1000, held.getNumPartitions()).rdd(sc).cache("GPU")
    gradient, w = one_pass(points, fused), np.zeros(FEATURES, np.float32)
    worker, = session.workers.known()
    client = stack.enter_context(connect(session.credentials.hello("driver", 0), runtime_dir=worker.home.runtime_dir))

    def twice() -> VRDD:
        return held.exec(_TWICE.twice, IN, OUT, IN.shape[0], grid=lambda b: -(-b.shape[0] // 256), block=256)

    cases = {
        "request: report": lambda: _report(client),
        "request: a plan that does nothing": _empty_plan(client, number, held.getNumPartitions()),
        "first()": held.first,
        "count()": held.count,
        "reduce(add)": lambda: held.reduce(operator.add),
        "exec, then reduce(add)": lambda: twice().reduce(operator.add),
        "exec, then collect()": lambda: twice().collect(),
        "an iteration of logistic regression": lambda: gradient(w),
    }
    return [Case(name, action, against=(EMPTY_JOB,), repeat=False) for name, action in cases.items()]


def _report(client: Client) -> None:
    client.request(Report(client.next_number()))


def _empty_plan(client: Client, number: int, partitions: int) -> Callable[[], None]:
    """Return a function that asks for a plan that the worker knows, as a loop does."""
    inputs = tuple(Input(partition, 0, 0, 0, b"", ()) for partition in range(partitions))
    key, encoded = sealed(Plan((LoadStep(0),), (), (), inputs, ()))

    def ask(plan: bytes = b"") -> None:
        client.request(Run(client.next_number(), client.epoch, 60.0, key, plan, (number,), ()))

    ask(encoded)
    return ask
