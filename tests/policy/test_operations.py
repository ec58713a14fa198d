"""Nothing asks which operation or which step it has: recorded operations and handlers of steps answer themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpu_worker.protocol.plans import Step
from tests.policy import rules
from tests.policy.test_words import SOURCES
from vispark.plan.operation import RecordedOperation


def _kinds(of: type) -> Iterator[str]:
    for kind in of.__subclasses__():
        yield kind.__name__
        yield from _kinds(kind)


def _asked(source: str, kinds: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Yield classes of some names that ``isinstance``, a comparison of types, or a pattern asks about, with their
    lines.
    """
    for node in rules.nodes(source):
        places: list[ast.AST] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            places = node.args[1:]
        elif isinstance(node, ast.MatchClass):
            places = [node.cls]
        elif isinstance(node, ast.Compare) and "type(" in ast.unparse(node):
            places = [node]
        for part in (name for place in places for name in ast.walk(place)):
            name = part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "")
            if name in kinds:
                yield part.lineno, name


def _problems(package: str, but: str, kinds: frozenset[str]) -> list[str]:
    return [f"{path}:{line} asks for {name}" for path, source in SOURCES.items()
            if path.startswith(package) and not path.startswith(but) for line, name in _asked(source, kinds)]


def test_what_is_looked_for_is_found():
    source = "isinstance(x, ops.Keys | Values)\nmatch x:\n    case Keys():\n        pass\ntype(x) is Keys"
    assert sorted(line for line, _ in _asked(source, frozenset({"Keys", "Values"}))) == [1, 1, 3, 5]


def test_no_file_asks_which_operation_was_recorded():
    assert _problems("vispark/", "vispark/plan/operations/", frozenset(_kinds(RecordedOperation))) == []


def test_no_file_of_the_worker_asks_which_step_it_runs():
    assert _problems("gpu_worker/", "gpu_worker/execution/steps/",
                     frozenset(each.__name__ for each in Step.__args__)) == []
