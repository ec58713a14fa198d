"""The worked examples of docs/development are what is in the tree, and name all that can be said otherwise."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from gpu_worker.client.transport import Transport
from gpu_worker.device.base import Device
from gpu_worker.exchange.base import JoinedWorld
from gpu_worker.execution.passes.step_handlers import StepHandler
from gpu_worker.protocol.device_kinds import DeviceKind
from gpu_worker.protocol.transport_kinds import TransportKind
from tests.device.toy import TOY
from tests.system.tunnel import TUNNEL
from vispark.plan.operation import RecordedOperation

ROOT = Path(__file__).resolve().parents[2]


def _page(name: str) -> str:
    return (ROOT / "docs" / "development" / f"{name}.md").read_text()


def _added(page: str) -> list[tuple[str, str]]:
    """Return the file, if it is named, and the added lines of each diff of a page."""
    return [(file, "".join(line.removeprefix("+") + "\n" for line in lines.splitlines()))
            for file, lines in re.findall(r"```diff\n(?:--- a/(\S+)\n\+\+\+ b/\S+\n)?(.*?)```", page, re.S)]


def _answers(section: str) -> set[str]:
    """Return the names in the first column of a section's tables."""
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return set(re.findall(r"`(\w+)`", " ".join(rows)))


def _public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("page", "count"), [("add_a_numpy_function", 2), ("add_an_operation", 3)])
def test_a_page_shows_lines_that_are_in_the_tree(page: str, count: int):
    diffs = _added(_page(page))
    assert len(diffs) == count
    for file, added in diffs:
        assert added in (ROOT / file).read_text(), f"{file} has other lines than the page"


@pytest.mark.parametrize(("page", "entry"), [("add_a_transport", TUNNEL), ("add_a_device", TOY)])
def test_an_entry(page: str, entry: TransportKind | DeviceKind):
    (_, added), = _added(_page(page))
    names = {kind.__name__: kind for kind in (TransportKind, DeviceKind)} | {"register": lambda kind: kind}
    assert eval(added, names) == entry


def test_an_operation_names_all_that_its_classes_answer():
    recorded, worker = _page("add_an_operation").split("## What a worker does")
    assert _answers(recorded) - {"__str__"} == _public(RecordedOperation)
    assert _answers(worker) == _public(StepHandler)


@pytest.mark.parametrize(("page", "kind"), [("add_a_transport", Transport), ("add_a_transport", JoinedWorld),
                                            ("add_a_device", Device)])
def test_a_page_names_what_a_class_must_implement(page: str, kind: type):
    assert kind.__abstractmethods__ <= set(re.findall(r"`(\w+)`", _page(page)))


def test_an_operation_has_the_size_that_is_said():
    sizes = {(folder, name): int(lines) for folder, name, lines in re.findall(
        r"^\| `(\S+)`[^|]*\|[^|]*\| `(\w+)[^`]*`, (\d+) lines", _page("add_an_operation"), re.M)}
    assert len(sizes) == 4
    for (folder, name), lines in sizes.items():
        if (file := ROOT / folder / f"{name}.py").is_file():
            assert len(file.read_text().splitlines()) == lines, file
        else:
            node, = [node for node in ast.parse((ROOT / folder).read_text()).body if getattr(node, "name", "") == name]
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            assert node.end_lineno - first + 1 == lines, name
