"""Packages import what their contracts name, and no modules import each other."""

from __future__ import annotations

import ast
import re

import pytest

from tests.policy import layers
from tests.policy.test_repository import ROOT

FILES = sorted(str(path.relative_to(ROOT)) for top in ("vispark", "gpu_worker") for path in (ROOT / top).rglob("*.py"))
MODULES = set(map(layers.module_of, FILES))


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return {path: (ROOT / path).read_text(encoding="utf-8") for path in FILES}


def test_packages_import_what_their_contracts_name(sources: dict[str, str]):
    assert [found for path, source in sources.items()
            for found in layers.against_contracts(source, path, MODULES)] == []


def test_contracts_name_packages_that_there_are():
    named = {package for table in (layers.CONTRACTS, *layers.WITHIN.values()) for each in table.items()
             for package in (each[0], *each[1])}
    assert not [each for each in named if each not in MODULES]


def test_exceptions_are_of_modules_that_name_others_in_strings(sources: dict[str, str]):
    exceptions = {(layers.module_of(path), package) for path, source in sources.items()
                  for _, name in layers.named(source, MODULES)
                  for package in layers.NAMED.get(layers.module_of(path), ())
                  if f"{name}.".startswith(f"{package}.")}
    assert exceptions == {(module, package) for module, packages in layers.NAMED.items() for package in packages}


def test_contracts_have_an_order():
    for contracts in (layers.CONTRACTS, *layers.WITHIN.values()):
        assert layers.cycle({package: set(names) - {package} for package, names in contracts.items()}) == []


def test_no_modules_import_each_other(sources: dict[str, str]):
    assert layers.cycle(layers.edges(sources)) == []


@pytest.mark.parametrize(("directory", "most"), [("vispark", 8), ("gpu_worker", 9)])
def test_packages_on_top_are_few_and_in_the_order(directory: str, most: int):
    assert layers.below(directory, FILES) == set(layers.ORDER[directory])
    assert len(layers.ORDER[directory]) <= most


@pytest.mark.parametrize("package", layers.ORDER_WITHIN)
def test_packages_with_an_order_within_have_no_module_without_a_contract(package: str):
    modules = {module for path in FILES if (module := layers.module_of(path)).rpartition(".")[0] == package}
    assert layers.below(package, FILES) == set(layers.ORDER_WITHIN[package])
    assert modules == set(layers.WITHIN[package])


def test_contracts_keep_the_order_of_the_data():
    for contracts in (layers.CONTRACTS, *layers.WITHIN.values()):
        assert list(layers.against_order(contracts)) == []


def test_packages_say_their_place_and_who_runs_them(sources: dict[str, str]):
    texts = {(above, package): ast.get_docstring(ast.parse(
                 sources[f"{above.replace('.', '/')}/{package}/__init__.py"])) or ""
             for above, packages in (layers.ORDER | layers.ORDER_WITHIN).items() for package in packages}
    assert [found for (above, package), text in texts.items()
            for found in layers.against_docstrings(text, above, package)] == []


def test_the_tour_has_the_packages_in_their_order():
    tour = (ROOT / "docs/development/tour.md").read_text(encoding="utf-8")
    tree = re.findall(r"^(?:├── |└── )(\w+)/", tour, flags=re.MULTILINE)
    assert tree == [package for directory in ("vispark", "gpu_worker") for package in layers.ORDER[directory]]


@pytest.mark.parametrize("package", layers.ORDER_WITHIN)
def test_the_tour_has_the_packages_within_others(package: str):
    tour = (ROOT / "docs/development/tour.md").read_text(encoding="utf-8")
    project, _, name = package.partition(".")
    below = re.search(rf"^{project}/ (?:.*\n)*?(?:├── |└── ){name}/.*\n((?:[│ ]   .*\n)*)", tour, flags=re.MULTILINE)
    assert below is not None
    assert re.findall(r"(?:├── |└── )(\w+)/", below[1]) == list(layers.ORDER_WITHIN[package])


@pytest.mark.parametrize(("path", "source"), [
    ("vispark/data/grid/key.py", "if TYPE_CHECKING:\n    from vispark.api.grids.grid import Grid\n"),
    ("gpu_worker/device/base.py", "from gpu_worker.device.memory import bindings\n"),
    ("vispark/translate/ir/forms.py", "import vispark.translate.codegen.scalar\n"),
    ("vispark/api/vrdd.py", "from gpu_worker.daemon import daemon\n"),
    ("gpu_worker/execution/grid/state.py", "from gpu_worker.execution.plans import waves\n"),
    ("vispark/migrate/source/program.py", "from vispark.migrate.record import recorder\n"),
    ("vispark/migrate/tune/search.py", "if TYPE_CHECKING:\n    from vispark.migrate.cli import main\n"),
    ("vispark/elsewhere/file.py", ""),
    ("vispark/data/grid/spec.py", "import_module('vispark.api.grids.grid')\n"),
    ("gpu_worker/protocol/payload.py", "_ENTRIES = {'cuda': 'gpu_worker.device.cuda.device:open_cuda'}\n"),
    ("gpu_worker/protocol/device_kinds.py", "import_module('gpu_worker.server.device_process')\n"),
    ("vispark/plan/ops.py", "import_module(f'vispark.ml.{name}')\n"),
    ("vispark/migrate/rules/advice.py", "_RUNS = ['vispark.migrate.record.first_run']\n"),
])
def test_a_violation_is_found(path: str, source: str):
    assert len(list(layers.against_contracts(source, path, MODULES))) == 1


@pytest.mark.parametrize(("path", "source"), [
    ("vispark/data/grid/key.py", "import_module('vispark.api.grids.grid')\n"),
    ("vispark/plan/ops.py", "[sys.executable, '-m', 'vispark.api.grids.grid']\n"),
    ("vispark/plan/ops.py", "'vispark.json', 'of vispark.api.grids.grid'\n"),
])
def test_exceptions_processes_and_other_strings_are_no_violations(path: str, source: str):
    assert list(layers.against_contracts(source, path, MODULES)) == []


def test_a_cycle_is_found():
    sources = {"vispark/a.py": "from vispark import b\n", "vispark/b.py": "from vispark.c import name\n",
               "vispark/c.py": "if TYPE_CHECKING:\n    from vispark.a import A\n", "vispark/__init__.py": ""}
    for closing in (sources["vispark/c.py"], "import_module('vispark.a')\n", "ENTRIES = {'a': 'vispark.a:A'}\n"):
        sources["vispark/c.py"] = closing
        assert layers.cycle(layers.edges(sources)) == ["vispark.a", "vispark.b", "vispark.c", "vispark.a"]


def test_a_package_more_or_out_of_order_is_found():
    assert layers.below("vispark", ["vispark/errors.py", "vispark/data/a.py", "vispark/b/c/d.py"]) == {"data", "b"}
    assert len(list(layers.against_order({"vispark.data.records": ("vispark.plan",)}))) == 1
    assert len(list(layers.against_order({"gpu_worker.device": ("gpu_worker.server.tcp",)}))) == 1
    assert len(list(layers.against_order({"gpu_worker.execution.folds": ("gpu_worker.execution.steps",)}))) == 1
    assert list(layers.against_order({"vispark.plan": ("vispark.data.grid", "gpu_worker.commands.web")})) == []
    assert len(list(layers.against_docstrings("Place 2 of 8 in the order of the data.", "vispark", "data"))) == 1
