"""From what the user recorded to what a worker does: transfers put in where data is not where it is needed.

A kernel's input is brought to the device. A result that is fetched is copied out by the fetch itself, so a ``dtoh``
before it costs nothing; one before a kept or used value stays.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_worker.protocol import messages
from gpu_worker.protocol.messages import Step
from vispark import plan
from vispark.plan import Cached, Chain


@dataclass(frozen=True)
class Goal:
    """What is wanted of a chain's result: its records (up to ``limit``, all if below 0), its fold, or neither."""

    fetch: bool = True
    limit: int = -1
    fold: messages.Fold | messages.FoldByKey | None = None


#: The records themselves; nothing but what is kept on the way.
FETCH = Goal()
KEEP = Goal(fetch=False)


def after_start(chain: Chain, start: Cached | None) -> Chain:
    """The part of a chain that is still to be done from ``start``: a node's number, or None for the RDD's records."""
    if start is None:
        return chain[1:]
    position = next(index for index, node in enumerate(chain) if node.cached == start)
    return chain[position + 1:]


def steps(chain: Chain, start: Cached | None, goal: Goal) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """The protocol steps of a chain, and the numbers of the VRDDs in their slots.

    Parameters
    ----------
    chain : Chain
        The whole chain, from its send.
    start : Cached or None
        Where to start: content that workers hold, or the RDD's records.
    goal : Goal
        What to do with the result.
    """
    numbers = [] if start is None else [start.number]
    found: list[Step] = [messages.Put() if start is None else messages.Load(0)]
    if start is None and chain[0].cached:
        found.append(_keep(chain[:1], numbers))
    remaining = after_start(chain, start)
    for position, node in enumerate(remaining):
        found.extend(_node(node, last=position == len(remaining) - 1 and goal.fetch))
        if node.cached:
            found.append(_keep(chain[:len(chain) - len(remaining) + position + 1], numbers))
    if goal.fold:
        found.append(goal.fold)
    elif goal.fetch:
        found.append(messages.Fetch(-1, ""))
    return tuple(found), tuple(numbers)


def _node(node: plan.Node, last: bool) -> list[Step]:
    match node.op:
        case plan.ToDevice():
            return [messages.ToDevice()]
        case plan.ToHost():
            return [] if last and not node.cached else [messages.ToHost()]
        case plan.Exec(spec) | plan.Map(spec):
            return [messages.ToDevice(), messages.Exec(spec.label)]
        case plan.FoldInside(spec):
            return [messages.ToDevice(), messages.FoldInside(str(node.op), spec.fields(), "")]
        case plan.Keys():
            return [messages.Keys()]
        case plan.Values():
            return [messages.Values()]
    raise AssertionError(f"no step for {node.op}")


def _keep(chain: Chain, numbers: list[int]) -> Step:
    """Keep the chain's result where it lies, under its number in a new slot."""
    cached = chain[-1].cached
    numbers.append(cached.number)
    return messages.Keep(len(numbers) - 1, cached.name, plan.place_of(chain))
