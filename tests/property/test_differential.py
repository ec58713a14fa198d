"""A sample of the generated functions; ``python -m tests.property.differential`` runs as many as one likes."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.property.differential import campaign, data
from tests.property.differential.coverage import nodes
from tests.property.differential.probes import PROBES

#: Functions in a sample, each of which is one unit.
SAMPLE = 80


@settings(max_examples=3, deadline=None, derandomize=True, phases=[Phase.generate],
          suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6))
def test_generated_functions_do_what_python_does(seed: int):
    tally = campaign.check(list(campaign.drawn_functions(f"sample {seed}", SAMPLE)), "host")
    assert not tally.differences, "\n".join(tally.differences)
    assert tally.cases == SAMPLE


def test_a_sample_meets_every_node_of_the_form():
    tally = campaign.check(list(campaign.drawn_functions("nodes", 3 * SAMPLE)), "host")
    missed = set(nodes()) - {name for name, _ in tally.pairs}
    assert not missed and not tally.differences


def test_what_python_refuses_is_refused():
    wrong = []
    for number, probe in enumerate(PROBES):
        dtype = data.DTYPES[number % len(data.DTYPES)]
        kind, words = campaign.verdict(probe, dtype, dtype, 3)
        wrong += [f"{probe.text} of {dtype}: {words}"] if kind == campaign.WRONG else []
    assert not wrong


def test_a_function_is_drawn_again_from_its_seed():
    one, two = (list(campaign.drawn_functions("again", 5))[-1] for _ in range(2))
    assert one.source() == two.source()
    assert all(np.array_equal(one.fields[name], two.fields[name], equal_nan=one.fields[name].dtype.kind in "fc")
               for name in one.fields)
    assert campaign.again("again.4", "host").cases == 1
