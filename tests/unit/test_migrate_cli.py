"""The command ``vispark``: lazily loaded commands, their errors and exit statuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

from tests.unit.test_imports import _imported
from vispark.migrate import cli, extra_packages
from vispark.migrate.errors import NO, UNKNOWN, USAGE, YES, EventLogError, MissingPackage


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Add a command of a module of its own, as another part of the suite does."""
    module = ModuleType("added_to_vispark")

    @click.command()
    @click.option("--fail", is_flag=True)
    def added(fail: bool) -> None:
        """Do something."""
        if fail:
            raise EventLogError("x.log is no event log")

    module.command = added
    monkeypatch.setitem(sys.modules, "added_to_vispark", module)
    monkeypatch.setitem(cli.COMMANDS, "added", "added_to_vispark")
    yield ["added"]
    cli.main.commands.pop("added", None)


def test_the_package_alone_does_not_load_it():
    assert not {name for name in _imported("import vispark") if name.startswith("vispark.migrate")}


def test_a_group_without_a_command_loads_none():
    assert "zstandard" not in _imported("import vispark.migrate.cli")


def test_a_command_is_a_module_and_a_line(command: list[str]):
    assert CliRunner().invoke(cli.main, command).exit_code == 0
    assert "Do something." in CliRunner().invoke(cli.main, ["--help"]).output


def test_an_error_is_one_line_and_not_known(command: list[str]):
    ended = CliRunner().invoke(cli.main, [*command, "--fail"])
    assert (ended.exit_code, ended.output) == (UNKNOWN, "vispark: x.log is no event log\n")


def test_an_error_is_json_where_that_is_asked_for(tmp_path: Path):
    script = tmp_path / "job.py"
    script.write_text("def f(:\n")
    ended = CliRunner().invoke(cli.main, ["qualify", str(script), "--json"])
    assert ended.exit_code == UNKNOWN and "is no Python" in ended.stderr
    assert json.loads(ended.stdout) == {"error": f"{script}, line 1 is no Python: invalid syntax", "status": UNKNOWN}


@pytest.mark.parametrize(("text", "why"), [
    ("print(1)\n", "no operation of an RDD was found"),
    ("print(sc.parallelize(a).map(f).sum())\n", "no loop has operations of an RDD")])
def test_a_port_of_nothing_says_why(tmp_path: Path, text: str, why: str):
    script = tmp_path / "job.py"
    script.write_text(text)
    ended = CliRunner().invoke(cli.main, ["port", str(script), "--json"])
    assert ended.exit_code == NO and why in json.loads(ended.stdout)["refused"][0]


def test_a_script_that_is_not_there_is_not_submitted(tmp_path: Path):
    ended = CliRunner().invoke(cli.main, ["submit", str(tmp_path / "none.py")])
    assert ended.exit_code == USAGE and "none.py does not exist" in ended.output


#: A program and its port, without Spark: one value after each of two passes.
PASSES = """class Data:
    def map(self, f): return self
    def sum(self): return {value}

data = Data()
for i in range(2):
    total = data.map(lambda x: x).sum()
"""
FILES = {"gains.py": "d = sc.parallelize(a).cache()\nfor i in b:\n    d.map(lambda x: x).sum()\n",
         "none.py": "print(1)\n",
         "open.py": "d = sc.parallelize(a).cache()\nfor i in b:\n    d.map(made(i)).sum()\n", "bad.py": "def f(:\n",
         "cpu.py": PASSES.format(value=2.5), "gpu.py": PASSES.format(value="2.5 + 0.0"),
         "wrong.py": PASSES.format(value=2.75)}


@pytest.mark.parametrize(("line", "status"), [
    ("qualify gains.py", YES), ("qualify none.py", NO), ("qualify open.py", UNKNOWN), ("qualify bad.py", UNKNOWN),
    ("port gains.py", UNKNOWN), ("port none.py", NO), ("port open.py", UNKNOWN), ("port bad.py", UNKNOWN),
    ("validate --no-noise cpu.py gpu.py", YES), ("validate --no-noise cpu.py wrong.py", NO),
    ("validate --no-noise none.py none.py", UNKNOWN), ("validate cpu.py bad.py", UNKNOWN),
    ("record bad.py", UNKNOWN), ("run bad.py", UNKNOWN), ("profile bad.py", UNKNOWN), ("tune bad.py", UNKNOWN),
    ("predict --bytes 1e9", YES), ("predict --job 99 --line 3", UNKNOWN), ("calibrate --out none/c.json", UNKNOWN),
    ("report list", YES), ("report export", YES), ("report prune", YES), ("report job 99", UNKNOWN),
    ("report html 99", UNKNOWN), ("config show", YES), ("config check", YES), ("config explain spark.app.name", USAGE),
    ("config check --conf spark.vispark.devise=1", NO), ("submit --dry-run gains.py", YES),
    ("submit --cluster none gains.py", UNKNOWN), ("cluster list", YES), ("cluster show none", UNKNOWN),
    ("cluster create x --platform none", USAGE), ("cluster create x --platform local --dry-run", YES),
    ("predict --on none", USAGE), ("report html one", USAGE), ("calibrate --nothing", USAGE),
    ("tune --runs 0 a.py", USAGE),
    *((f"{name} missing.py", USAGE) for name in ("qualify", "port", "record", "run", "profile", "tune", "submit"))])
def test_exit_statuses_with_and_without_json(line: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("VISPARK_HISTORY", str(tmp_path / "history.db"))
    command, *words = line.split()
    name = words.pop(0) if command in ("report", "config", "cluster") else None
    ended = CliRunner().invoke(cli.main, [command, *([name] if name else []), "--json", *words])
    assert ended.exit_code == status, ended.output
    document = json.loads(ended.stdout)
    assert status not in (USAGE, UNKNOWN) or command in ("port", "qualify", "predict", "validate", "tune") or document[
        "status"] == status


@pytest.mark.parametrize("words", [["nothing"], ["added", "--nothing"]])
def test_wrong_use(command: list[str], words: list[str]):
    assert CliRunner().invoke(cli.main, words).exit_code == USAGE


def test_a_missing_package_is_named_with_its_extra():
    with pytest.raises(MissingPackage, match=r"pip install 'vispark\[migrate\]'"):
        extra_packages.required("no_such_package", "migrate", "reading an event log that zstd compressed")
