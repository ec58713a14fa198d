"""The documentation is what the code is: generated parts are up to date, and what pages name is there."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from pyspark import RDD
from pyspark.ml import Model

import vispark
from docs import generate
from gpu_worker.cli import main as gpu_worker
from gpu_worker.protocol.version import __version__
from vispark.migrate.cli import main as vispark_command
from vispark.ml.installation import ESTIMATORS, EVALUATORS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_LINK = re.compile(r"\[[^]]*\]\(([^)#]+)(#[^)]*)?\)")
_PATH = re.compile(r"`((?:vispark|gpu_worker|tests|examples|bin|docs|benchmarks|\.ci)/[\w./-]*)(?:::(\w+))?`")

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@pages
def test_generated_parts_are_up_to_date(page: Path):
    text = page.read_text(encoding="utf-8")
    assert generate.generated(text) == text, "run: python -m docs.generate"


@pytest.mark.parametrize("part", generate.PARTS)
def test_every_generated_part_has_a_place(part: str):
    assert sum(page.read_text(encoding="utf-8").count(f"<!-- generated: {part} -->") for page in PAGES) == 1


@pages
def test_links_lead_somewhere(page: Path):
    text = re.sub(r"`[^`\n]*`", "", page.read_text(encoding="utf-8"))      # an index and a call of it are no link
    targets = [target for target, _ in _LINK.findall(text) if "://" not in target]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing, missing


@pages
def test_files_and_tests_are_there(page: Path):
    missing = [f"{path}::{name}" if name else path for path, name in _PATH.findall(page.read_text(encoding="utf-8"))
               if not (ROOT / path).exists() or (name and name not in _defined(ROOT / path))]
    assert not missing, missing


@pages
def test_wheels_and_images_are_of_this_version(page: Path):
    text = page.read_text(encoding="utf-8")
    middle = __version__.rpartition(".")[0]
    assert set(re.findall(r"vispark-([\d.]+)-py3-none-any\.whl", text)) <= {__version__}
    assert set(re.findall(r"/vispark:([\d.]+)", text)) <= {middle}


#: Groups of commands, and a line of a page, or code in it, that calls one.
_GROUPS: dict[str, click.Group] = {"gpu-worker": gpu_worker, "vispark": vispark_command}
_CALL = re.compile(r"(?:`|^    |^\$ |^    \$ |\$\()(?:[\w./-]+/)?(gpu-worker|vispark) ((?:[^`\n#>|)]|\\\n)+)",
                   re.MULTILINE)


def _what_is_missing(group: str, words: list[str]) -> str:
    """Return the command or option of a call that is not there, or ""."""
    command: click.Command = _GROUPS[group]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        if (inner := command.get_command(click.Context(command), name)) is None:
            return name
        command = inner
    known = {"--help"}.union(*([*each.opts, *each.secondary_opts] for each in command.params))
    options = [word.partition("=")[0] for word in words if re.match("--?[a-z]", word)]
    # What follows the script of a program is the program's own or Spark's.
    return "" if command.ignore_unknown_options else next((each for each in options if each not in known), "")


@pages
def test_commands_and_their_options_are_there(page: Path):
    if page.parent.name == "decisions":
        return
    written = _CALL.findall(page.read_text(encoding="utf-8"))
    calls = [(group, rest.replace("\\\n", " ").split()) for group, rest in written]
    missing = [f"{group} {' '.join(words)}: {lack}" for group, words in calls
               if (lack := _what_is_missing(group, words))]
    assert not missing, missing


@pages
def test_lines_are_not_too_long(page: Path):
    """Look at prose alone, as tables and pasted output may be wider."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    long = [line for line in prose.splitlines() if len(line) > 120 and not line.startswith("|")
            and not line.lstrip().startswith("- `")]
    assert not long, "\n".join(long)


#: Names that VRDD and its like need in public for other modules of vispark, and that users do not call.
_OURS = {"columnar", "held_columnar", "sent", "tokens", "forget_places", "add", "add_task_seconds"}


def test_every_public_name_is_in_the_reference():
    page = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^   ([\w.]+)$", page, re.MULTILINE))
    names = listed | {name.partition(".")[0] for name in listed}
    assert set(vispark.__all__) <= names, set(vispark.__all__) - names
    for kind in (vispark.VRDD, vispark.Grid, vispark.Profile):
        own = {name for base in kind.__mro__ if base.__module__.startswith("vispark") for name in vars(base)
               if not name.startswith("_")} - set(dir(RDD)) - _OURS
        own |= {name for name in dir(kind) if _is_described(getattr(kind, name))}
        methods = {f"{kind.__name__}.{name}" for name in own if callable(getattr(kind, name, None))}
        assert methods <= listed, methods - listed
    assert all(hasattr(vispark, name) or hasattr(getattr(vispark, name.partition(".")[0]), name.partition(".")[2])
               for name in listed)


def _is_described(method: Any) -> bool:
    """Return whether a method is one of ours with an example, whatever PySpark has of that name."""
    is_ours = str(getattr(method, "__module__", "")).startswith("vispark")
    return is_ours and "\nExamples\n" in (inspect.getdoc(method) or "")


def _listed() -> dict[str, Any]:
    """Return the public names that the reference lists, and what they are."""
    text = "".join((ROOT / "docs/reference" / page).read_text(encoding="utf-8") for page in ("api.md", "ml.md"))
    return {name: functools.reduce(_inside, name.split("."), vispark)
            for name in re.findall(r"^   ([\w.]+)$", text, re.MULTILINE)}


def _inside(what: Any, name: str) -> Any:
    """Return an attribute of a module or a class, of a package a module that nobody has imported yet, too."""
    return getattr(what, name) if hasattr(what, name) else import_module(f"{what.__name__}.{name}")


def test_every_estimator_is_in_the_reference():
    """Look for all but models, which the estimators' examples show."""
    ours = {each for each in (*ESTIMATORS, *EVALUATORS) if not issubclass(each, Model)}
    assert ours <= set(filter(inspect.isclass, _listed().values()))


def test_every_public_function_documents_its_parameters():
    undocumented = {name: missing for name, what in _listed().items()
                    if inspect.isroutine(what) and (missing := _without_a_line(what))}
    assert undocumented == {}


def _without_a_line(function: Callable[..., Any]) -> list[str]:
    """Return the parameters that no line of a docstring's section describes; ``self`` has other names in modules."""
    lines = " ".join(re.findall(r"^\S.*", _section(function, "Parameters"), re.MULTILINE))
    return [name for name in inspect.signature(function).parameters
            if name not in ("self", "vrdd", "rdd") and not re.search(rf"\b{name}\b", lines)]


def test_every_public_function_documents_what_it_returns():
    """Look for shape and dtype of an array, too."""
    lacking = {name: lack for name, what in _listed().items()
               if inspect.isroutine(what) and (lack := _lack_of_returns(what))}
    assert lacking == {}


def _lack_of_returns(function: Callable[..., Any]) -> str:
    """Return the words that the section on a function's result lacks, or ""."""
    if str(inspect.signature(function).return_annotation) in ("None", "NoReturn"):
        return ""
    described = _section(function, "Returns")
    if not described:
        return "no section Returns"
    is_array = "ndarray" in described.splitlines()[0]
    words = [] if not is_array or function.__module__.startswith("pyspark") else ["shape", "dtype"]
    return ", ".join(f"no {word}" for word in words if word not in described)


def _section(function: Callable[..., Any], title: str) -> str:
    """Return the text of a section of a docstring, "" where there is none."""
    text = (inspect.getdoc(function) or "").partition(f"\n{title}\n{'-' * len(title)}\n")[2]
    return re.split(r"^\w[\w ]*\n-+$", text, flags=re.MULTILINE)[0]


def test_every_public_name_has_an_example():
    """Look past errors and warnings: they are in the tree of docs/reference/errors.md, with what each says."""
    named = _listed()
    assert len(named) > 100
    assert not [name for name, what in named.items() if "\nExamples\n" not in (inspect.getdoc(what) or "")
                and not (isinstance(what, type) and issubclass(what, Exception))]


def test_a_stale_part_is_found():
    text = "<!-- generated: caps -->\n\n| old |\n\n<!-- end -->"
    assert generate.generated(text) != text
    assert generate.generated(generate.generated(text)) == generate.generated(text)


def _defined(path: Path) -> set[str]:
    """Return the names of the functions and classes of a file, methods included."""
    return {node.name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.FunctionDef | ast.ClassDef)}
