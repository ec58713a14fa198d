"""Magics of a notebook, on a shell of IPython's, and that nothing imports IPython before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vispark.api.notebook import extension
from vispark.errors import PlanError
from vispark.runtime.profiling.profiler import Profile, current

interactive = pytest.importorskip("IPython.core.interactiveshell")
traitlets = pytest.importorskip("traitlets.config")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    # Without a history, whose thread and file would outlive the test.
    notebook = interactive.InteractiveShell(config=traitlets.Config({"HistoryManager": {"enabled": False}}))
    extension.load_ipython_extension(notebook)
    return notebook


def test_a_cell_is_profiled_in_the_notebooks_names(shell):
    profile = shell.run_cell_magic("vispark_profile", "", "answer = 6 * 7")
    assert isinstance(profile, Profile) and profile.total > 0
    assert shell.user_ns["answer"] == 42 and current() is None


def test_a_profile_writes_its_trace(shell, tmp_path: Path):
    shell.run_cell_magic("vispark_profile", str(tmp_path / "trace.json"), "1 + 1")
    assert "traceEvents" in (tmp_path / "trace.json").read_text()


def test_a_profile_whose_trace_cannot_be_written_is_not_lost(shell, tmp_path: Path, capsys):
    shell.user_ns["done"] = []
    with pytest.raises(PlanError, match=r"there is no directory .*none; make it first"):
        shell.run_cell_magic("vispark_profile", str(tmp_path / "none" / "trace.json"), "done.append(1)")
    (tmp_path / "folder").mkdir()
    profile = shell.run_cell_magic("vispark_profile", str(tmp_path / "folder" / "trace.json"),
                                   f"import os; os.rmdir({str(tmp_path / 'folder')!r}); done.append(2)")
    assert shell.user_ns["done"] == [2] and profile.total > 0
    assert "the trace cannot be written: " in capsys.readouterr().err
    with pytest.raises(FileNotFoundError):
        shell.run_cell_magic("vispark_profile", str(tmp_path / "trace.json"), "open('/no/such')")


def test_the_error_of_a_profiled_cell_ends_the_profile(shell, capsys):
    with pytest.raises(ZeroDivisionError):
        shell.run_cell_magic("vispark_profile", "", "1 / 0")
    assert current() is None


def test_status_tells_of_a_worker_that_is_down(shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VISPARK_RUNTIME_DIR", str(tmp_path / "none"))
    assert shell.run_line_magic("vispark", "status").startswith("down: ")


def test_an_unknown_magic_word_is_named(shell):
    with pytest.raises(PlanError, match="%vispark stats: there is %vispark status alone"):
        shell.run_line_magic("vispark", "stats")


def test_the_package_is_an_extension_and_imports_no_ipython():
    code = "import sys, vispark; vispark.load_ipython_extension; print('IPython' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert ended.stdout == "False\n"


def test_a_status_is_text_without_colours(shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VISPARK_RUNTIME_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("FORCE_COLOR", "1")
    status = shell.run_line_magic("vispark", "status")
    assert "\x1b" not in status
    data, _ = shell.display_formatter.format(status)
    assert data["text/plain"] == str(status)
