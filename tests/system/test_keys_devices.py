"""Exchanges by key among several devices of one worker."""

from __future__ import annotations

import operator

from tests.system.test_keys import float_pairs, numbers
from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context


def test_rows_go_from_device_to_device(local: Topology):
    with host_context(local, device="host:3") as context:
        plain = numbers(context, 300, 5)
        held = plain.cache("GPU").vmap(float_pairs)
        found = held.partitionBy(7)
        expected = plain.map(float_pairs).partitionBy(7, hash)
        assert [sorted(part) for part in found.glom().collect()] \
            == [sorted(part) for part in expected.glom().collect()]
        assert held.sortByKey(False, 4).collect() == sorted(
            plain.map(float_pairs).collect(), key=operator.itemgetter(0), reverse=True)
        assert sorted(held.join(found, 4).collect()) == sorted(
            plain.map(float_pairs).join(expected, 4).collect())
