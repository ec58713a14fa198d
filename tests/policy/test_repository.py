"""The repository's files keep the rules."""

from __future__ import annotations

import csv
import inspect
import json
import re
import socket
import subprocess
import sys
import tomllib
import types
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import vispark
import vispark.ml
from tests.policy import rules

ROOT = Path(__file__).resolve().parents[2]

#: Generated or taken over from elsewhere.
_NOT_OURS = ("gpu_worker/device/cuda/nvrtc_headers/", "tests/golden/")


def _files() -> dict[str, str]:
    """Return the text files of the repository: tracked, or not ignored."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, check=True).stdout.decode().split("\0")
    texts = {}
    for name in filter(None, listed):
        path = ROOT / name
        if path.is_file() and b"\0" not in (data := path.read_bytes()):
            texts[name] = data.decode()
    return texts


FILES = _files()
PYTHON = {path: text for path, text in FILES.items()
          if path.endswith(".py") or (path.startswith("bin/") and text.startswith("#!/usr/bin/env python"))}
SOURCES = {path: text for path, text in FILES.items()
           if path.endswith((".py", ".cu", ".cuh", ".h", ".hpp")) and not path.startswith(_NOT_OURS)}
RESULTS = [path for path in FILES if path.startswith("benchmarks/") and path.endswith((".json", ".jsonl", ".csv"))]


def _check(rule: Callable[..., Iterator[str]], files: dict[str, str], *arguments: str) -> None:
    problems = [problem for path, text in files.items() for problem in rule(text, path, *arguments)]
    assert not problems, "\n".join(problems)


def test_there_are_files_to_look_at():
    assert {"vispark/__init__.py", "gpu_worker/protocol/wire.py", "tests/policy/rules.py"} <= PYTHON.keys()


@pytest.mark.parametrize("rule", [rules.forbidden_imports, rules.inner_imports, rules.broad_excepts, rules.unpickling,
                                  rules.kind_names],
                         ids=lambda rule: rule.__name__)
def test_python_files(rule):
    _check(rule, PYTHON)


def test_mpi_is_imported_in_one_file_at_most():
    files = [path for path, text in PYTHON.items() if not path.startswith(("benchmarks/", "tests/"))
             and any(name.partition(".")[0] == "mpi4py" for _, name in rules.imports(text, path))]
    assert len(files) <= 1, files


def test_what_differs_between_devices_is_asked_of_their_headers():
    _check(rules.target_names, SOURCES)


def test_nothing_is_marked_unfinished():
    _check(rules.markers, FILES)


def test_no_file_names_a_machine():
    _check(rules.machine_names, FILES, socket.gethostname())


def test_public_names_are_exported():
    plain = {"annotations", "Any", "TYPE_CHECKING", "ModuleType", "import_module"}
    own = {name for name in dir(vispark) if not name.startswith("_") and name not in plain
           and (name in vispark.__all__ or not isinstance(getattr(vispark, name), types.ModuleType))}
    assert own == set(vispark.__all__)


def test_modules_of_public_names_are_strictly_typed():
    """Hold estimators' modules to it too; what mypy's --strict has beyond the settings for all is set for them by name.
    """
    strict = next(each["module"] for each in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
                  ["overrides"] if each.get("warn_return_any"))
    modules = {getattr(getattr(package, name), "__module__", package.__name__)
               for package in (vispark, vispark.ml) for name in dir(package) if not name.startswith("_")}
    ours = {name for name in modules if name.startswith(("vispark.", "gpu_worker."))}
    assert len(ours) > 20
    assert not [name for name in ours if not any(fnmatchcase(name, pattern) for pattern in strict)]


@pytest.mark.parametrize("name", sorted(getattr(vispark, "__all__", ())))
def test_public_names_are_documented(name):
    assert inspect.getdoc(getattr(vispark, name)), f"vispark.{name} has no docstring"
    pages = [text for path, text in FILES.items() if path == "README.md" or path.startswith("docs/")]
    assert any(re.search(rf"\b{name}\b", text) for text in pages), f"neither README.md nor docs/ mentions {name}"


@pytest.mark.parametrize("path", RESULTS)
def test_benchmark_results_parse(path):
    text = FILES[path]
    if path.endswith(".csv"):
        rows = list(csv.reader(text.splitlines(), strict=True))
        assert len({len(row) for row in rows}) == 1, "rows of different lengths"
    else:
        for document in text.splitlines() if path.endswith(".jsonl") else [text]:
            json.loads(document)


def test_the_worker_starts_from_a_checkout(tmp_path: Path):
    """Start it from any folder, by a link, with nothing of the environment but its interpreter's place."""
    (tmp_path / "gpu-worker").symlink_to(ROOT / "bin" / "gpu-worker")
    variables = {"PATH": "/usr/bin:/bin", "VISPARK_VENV": sys.prefix, "VISPARK_RUNTIME_DIR": str(tmp_path / "run")}
    ended = subprocess.run([tmp_path / "gpu-worker", "status"], cwd=tmp_path, env=variables, capture_output=True,
                           text=True)
    assert ended.returncode == 3 and "no GPU worker runs" in ended.stderr + ended.stdout
