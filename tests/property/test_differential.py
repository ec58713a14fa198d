"""A sample of the generated functions; ``python -m tests.property.differential`` runs as many as one likes."""

from __future__ import annotations

import functools
import os

import numpy as np
import pytest

from tests.property.differential import campaign, data, report, verdicts
from tests.property.differential.coverage import nodes
from tests.property.differential.dealing import Unit
from tests.property.differential.functions import draw
from tests.property.differential.hands import FinishedTask, Lost, UnitTask, by_hands
from tests.property.differential.probes import PROBES

#: Functions in a unit, and units.
SAMPLE, UNITS = 100, 4


@functools.cache
def _tally(number: int) -> campaign.Tally:
    """Return a unit's tally; one of them is compiled as carefully as the other tests' kernels are."""
    return campaign.check(list(Unit("samples", number).functions(SAMPLE)), "host", careful=number == 0)


@pytest.mark.parametrize("number", range(UNITS))
def test_generated_functions_do_what_python_does(number: int):
    tally = _tally(number)
    assert not tally.differences, "\n".join(tally.differences)
    assert tally.functions == SAMPLE


def test_a_sample_meets_every_node_of_the_form():
    assert not set(nodes()) - {name for number in range(UNITS) for name, _ in _tally(number).pairs}


DIFFERED = {"any({U})": "int8", "all({U})": "float32", "np.asarray({k})": "uint8",
            "special.softmax({r})": "int8", "special.log_softmax({B}, axis=-1)": "uint8",
            "np.linalg.cholesky({B} @ {B}.T.conj() + 3 * np.eye(2))": "complex128", "({k} * {p})": "float32",
            "({k}, {a})": "int16", "({j} + {a})": "float16", "random.integers(6, 1, abs(int({m})))": "int64"}


def test_templates_that_differed_once_do_what_python_does():
    texts = {probe.text: probe for probe in PROBES}
    drawn = [draw(f"differed {text}", dtype, dtype, [texts[text]], texts[text].rows, 3, alone=True)
             for text, dtype in DIFFERED.items()]
    assert not campaign.check(drawn, "host", careful=False).differences


def test_what_python_refuses_is_refused():
    wrong = []
    for number, probe in enumerate(PROBES):
        dtype = data.DTYPES[number % len(data.DTYPES)]
        verdict = verdicts.verdict(verdicts.key_of(probe, dtype, dtype, 3))
        wrong += [f"{probe.text} of {dtype}: {verdict.words}"] if verdict.kind == verdicts.WRONG else []
    assert not wrong


def test_a_function_is_drawn_again_from_its_name():
    steered = Unit("again", 7, "float16", ("numpy.sin", "<<", "unary -", ".T"))
    assert Unit.parse(steered.name) == steered
    one, two = (list(Unit.parse("again/7@float16").functions(5))[-1] for _ in range(2))
    assert one.source() == two.source()
    assert all(np.array_equal(one.fields[name], two.fields[name], equal_nan=one.fields[name].dtype.kind in "fc")
               for name in one.fields)
    assert two.dtype == "float16" and campaign.again(one.seed, "host").functions == 1


def test_a_unit_that_ends_its_process_is_halved_down_to_the_function():
    def work(task: UnitTask) -> int:
        if task.low <= 5 < task.high:
            os._exit(3)
        return task.high - task.low

    outcomes = list(by_hands(work, iter([UnitTask(Unit("lost", 0), "host", 0, 9)]), 1))
    lost = [one for one in outcomes if isinstance(one, Lost)]
    assert [(one.task.low, one.task.high, one.words) for one in lost] == [(5, 6, "ended with 3")]
    assert sum(one.result for one in outcomes if isinstance(one, FinishedTask)) == 8


def test_a_report_has_what_the_shortest_template_says_and_reads_each_verdict_a_few_times():
    """Count the readings: where each pair read all verdicts, the report of a long campaign took as long as some of its
    units.
    """
    reads = []

    class CountedDict(dict):
        def items(self):
            reads.append(len(self))
            return super().items()

    def key(text: str, dtype: str) -> verdicts.VerdictKey:
        return verdicts.VerdictKey(text, dtype, dtype, 3)

    named = frozenset({"numpy.sin"})
    markdown = report.impossible(campaign.Tally(), CountedDict({
        key("np.sin({a})", "float32"): verdicts.Judged(verdicts.RUNS, names=named),
        key("np.sin({a})", "int8"): verdicts.Judged(verdicts.RAISES, "short"),
        key("np.sin({a} + 1)", "float32"): verdicts.Judged(verdicts.RUNS, names=named),
        key("np.sin({a} + 1)", "int8"): verdicts.Judged(verdicts.LACKS, "long"),
        key("np.sin({a} + 1)", "int16"): verdicts.Judged(verdicts.LACKS, "long")}))
    assert f"| `numpy.sin` | int8 | `{verdicts.RAISES}: short` |" in markdown.splitlines()
    assert f"| `numpy.sin` | int16 | `{verdicts.LACKS}: long` |" in markdown.splitlines()
    assert len(reads) <= 4
