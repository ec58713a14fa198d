"""A plan in words: what was recorded, what workers do for it, and what they hold of it already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vispark import plan, rewrite
from vispark.plan import Chain
from vispark.rewrite import FETCH
from vispark.session import Session


def explain(session: Session, chain: Chain, partitions: int, folds: Mapping[str, str]) -> str:
    """The text that ``VRDD.explain`` prints; ``folds`` says how each action that folds ran last."""
    start = next((node.cached for node in reversed(chain) if node.cached), None)
    steps, numbers = rewrite.steps(chain, start, FETCH)
    return "\n".join([
        "== Plan ==", plan.describe(chain),
        "== Rewritten plan ==", *[f"{type(step).__name__}{_details(step, numbers)}" for step in steps],
        f"== Data: {partitions} partitions ==", *_held(session, chain),
        *(["== Folds =="] if folds else []), *[f"{action}: {how}" for action, how in folds.items()],
        "== Way ==", _way(session, chain),
    ])


def _details(step, numbers: Sequence[int]) -> str:
    vrdd = [str(numbers[step.slot])] if hasattr(step, "slot") else []
    shown = vrdd + [str(getattr(step, name)) for name in ("label", "place") if hasattr(step, name)]
    return f"({', '.join(shown)})" if shown else ""


def _held(session: Session, chain: Chain) -> list[str]:
    lines = []
    for position, node in enumerate(chain):
        residency = session.residencies.get(node.cached.number) if node.cached else None
        if residency:
            nbytes = sum(residency.contents[index].nbytes for index in residency.places)
            lines.append(f"VRDD {node.cached.number} ({node.cached.name}): {len(residency.places)} partitions held, "
                         f"{nbytes} bytes on {plan.place_of(chain[:position + 1])}")
    return lines or ["nothing is cached; every action sends the records"]


def _way(session: Session, chain: Chain) -> str:
    if not any(node.cached for node in chain):
        return "a Spark job: one request and one reply for each partition"
    workers = session.workers.known()
    relayed = sum(not worker.direct for worker in workers)
    way = "direct: one request and one reply for each worker, no Spark job"
    return way + (f"; {relayed} of {len(workers)} workers through a Spark task each" if relayed else "")
