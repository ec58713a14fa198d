"""Bindings of values to names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpu_worker.device.memory.bindings import Bindings, Numbers


class Content:
    """Something held, which says whether it is closed."""

    def __init__(self, index: int):
        self.index, self.closed = index, False

    def share(self) -> Content:
        return self

    def close(self) -> None:
        self.closed = True


def test_what_is_borrowed_is_closed_after_its_last_use():
    state: Bindings[Content] = Bindings(1)
    first, second = Content(0), Content(1)
    assert state.version(5) == 0 and not state.borrow({5: 1})
    state.bind(5, "x", first)
    version = state.version(5)
    assert version and state.borrow({5: version}) and state.borrow({5: version})
    state.bind(5, "x", second)
    assert state.version(5) != version and not state.borrow({5: version})
    state.release([5])
    state.validate()
    assert state.version(5) == 0
    state.give_back([5])
    assert not first.closed and not second.closed
    state.give_back([5])
    assert first.closed and second.closed


@given(st.lists(st.integers(0, 30)))
def test_ranges_hold_the_numbers_that_were_added(added: list[int]):
    numbers = Numbers()
    for number in added:
        numbers.add(number)
    assert [number for number in range(-1, 33) if number in numbers] == sorted(set(added))
    assert all(one[1] < other[0] for one, other in zip(numbers.ranges, numbers.ranges[1:], strict=False))


def test_a_long_loop_leaves_nothing_behind():
    state: Bindings[Content] = Bindings(1)
    for number in range(10_000):
        state.bind(number, "", Content(0))
        state.release([number - 2] if number > 1 else [])
    state.validate()
    assert len(state._released.ranges) == 1 and len(state._versions) == 2 and not state._borrowed
    late = Content(0)
    assert not state.bind(5000, "", late) and late.closed
