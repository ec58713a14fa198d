"""Packages import what their contracts name, and no modules import each other."""

from __future__ import annotations

import pytest

from tests.policy import layers
from tests.policy.test_repository import ROOT

FILES = sorted(str(path.relative_to(ROOT)) for top in ("vispark", "gpu_worker") for path in (ROOT / top).rglob("*.py"))


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return {path: (ROOT / path).read_text(encoding="utf-8") for path in FILES}


def test_packages_import_what_their_contracts_name(sources: dict[str, str]):
    assert [found for path, source in sources.items() for found in layers.against_contracts(source, path)] == []


def test_contracts_name_packages_that_there_are():
    named = {package for table in (layers.CONTRACTS, layers.TRANSLATOR) for each in table.items()
             for package in (each[0], *each[1])}
    modules = set(map(layers.module_of, FILES))
    assert not [each for each in named if each not in modules]


def test_contracts_have_an_order():
    graph = {package: set(names) - {package} for package, names in (layers.CONTRACTS | layers.TRANSLATOR).items()}
    assert layers.cycle(graph) == []


def test_no_modules_import_each_other(sources: dict[str, str]):
    assert layers.cycle(layers.edges(sources)) == []


@pytest.mark.parametrize(("path", "source"), [
    ("vispark/grid/key.py", "if TYPE_CHECKING:\n    from vispark.api.grid import Grid\n"),
    ("gpu_worker/device/base.py", "from gpu_worker.memory import bindings\n"),
    ("vispark/translate/ir/forms.py", "import vispark.translate.codegen.scalar\n"),
    ("vispark/api/vrdd.py", "from gpu_worker.daemon import daemon\n"),
    ("vispark/elsewhere/file.py", ""),
])
def test_a_violation_is_found(path: str, source: str):
    assert len(list(layers.against_contracts(source, path))) == 1


def test_a_cycle_is_found():
    sources = {"vispark/a.py": "from vispark import b\n", "vispark/b.py": "from vispark.c import name\n",
               "vispark/c.py": "if TYPE_CHECKING:\n    from vispark.a import A\n", "vispark/__init__.py": ""}
    assert layers.cycle(layers.edges(sources)) == ["vispark.a", "vispark.b", "vispark.c", "vispark.a"]
