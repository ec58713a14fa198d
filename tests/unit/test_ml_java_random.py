"""Numbers of java.util.Random."""

from __future__ import annotations

from vispark.ml.java_random import JavaRandom


def test_numbers_are_those_of_java():
    """Printed by a JVM for these seeds."""
    random = JavaRandom(-7)
    assert [random.integer(bound) for bound in (100, 64, 2**31 - 1, 2**30 + 1)] == [62, 57, 1445645590, 314447087]
    assert [random.uniform(), random.normal(), random.normal(), random.normal()] == [
        0.8518782305056931, -0.8529129767446793, -0.08186279420862214, 1.9413977414569221]
