"""Grids over several workers of this machine, whose device processes send each other cells over UCX."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from gpu_worker.protocol.grids import Phase
from gpu_worker.protocol.messages import KeepStep
from tests.mpi.nodes import Application, Node, nodes
from tests.mpi.test_exchange import CASES, check_cases
from tests.mpi.test_world import called, case_of, field
from tests.unit.grids import Case
from tests.unit.test_patches_steps import halo, stepped

pytest.importorskip("libucx")
pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]

#: What UCX_TLS is, by what the messages go over.
TRANSPORTS = {"tcp": "tcp,self", "shared memory": "sm,self"}

#: How soon the loss of a process is an error, in seconds.
SOON = 5.0


@pytest.fixture(scope="module", params=TRANSPORTS)
def two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UCX_TLS", TRANSPORTS[request.param])
        with nodes(tmp_path_factory.mktemp("n"), 2, [(), ()]) as found:     # whose daemons do not know each other
            yield found


def application(session: str, found: list[Node], case: Case, weight: float = 0.01) -> Application:
    return Application(session, found, case, weight, "ucx")


def test_an_exchange_restores_the_coordinates(two: list[Node]):
    check_cases(two, "ucx", CASES)


def test_a_loop_has_the_bits_of_one_block_and_of_mpi(two: list[Node], tmp_path_factory: pytest.TempPathFactory):
    found = []
    for count, splits in ((1, (1, 1, 1)), (2, (4, 2, 3))):
        case = case_of(count, (12, 9, 14), splits)
        with application(f"bits-{count}", two[:count], case) as app:
            app.put(1, field(case))
            app.run((1, 2), app.loop(12), KeepStep(1, "u", "device"))
            found.append(app.fetch(2))
            assert all(app.sent()) == (count > 1)
            if count == 2:
                many = [Phase("around", (halo(case, False),), 0)] * 2       # two fused steps in each pass
                app.run((1, 3), app.loop(6, phases=tuple(many)), KeepStep(1, "u", "device"))
                found.append(app.fetch(3))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    with nodes(tmp_path_factory.mktemp("m"), 2) as others, Application("bits", others, case) as app:
        app.put(1, field(case))
        app.run((1, 2), app.loop(12), KeepStep(1, "u", "device"))
        np.testing.assert_array_equal(app.fetch(2), found[0])


def test_calls_that_come_again_are_done_again(two: list[Node]):
    with application("both", two, case_of(2)) as both:
        found, counts = called(both, 0, both.loop(3))
        assert min(counts) >= 5
        np.testing.assert_allclose(found, stepped(field(both.case), both.case, 36), rtol=1e-9)


def test_a_loop_ends_on_all_nodes_at_once(two: list[Node]):
    case = case_of(2, widths=(0, 0, 1))
    full = field(case, 2)
    changes = [np.abs(stepped(full, case, step) - stepped(full, case, step - 1)).max() for step in range(1, 9)]
    with application("until", two, case) as app:
        app.put(1, full)
        replies = app.run((1, 2), app.loop(20, until=changes[5] * 1.0001, every=2), KeepStep(1, "u", "device"))
        assert [reply.iterated[0].steps for reply, _ in replies] == [6, 6]


def test_large_faces(two: list[Node]):
    """Some that UCX sends by rendezvous: 2 MiB each."""
    case = case_of(2, (4, 512, 512), (2, 1, 1), (1, 0, 0))
    full = field(case)
    with application("large", two, case) as app:
        app.put(1, full)
        app.run((1, 2), app.loop(4), KeepStep(1, "u", "device"))
        np.testing.assert_allclose(app.fetch(2), stepped(full, case, 4), rtol=1e-11)
        assert min(app.sent()) >= 4 * 512 * 512 * 8
