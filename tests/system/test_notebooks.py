"""The notebooks of examples/notebooks, one also without ipywidgets: each checks its answers, and shows what is kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.optional import needed

needed("nbclient")
needed("ipywidgets")
needed("matplotlib")

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("arguments", [[], ["--without", "ipywidgets", "kmeans.ipynb"]], ids=["ipywidgets", "without"])
def test_notebooks_show_what_is_kept(arguments: list[str]):
    # In a process of its own: a kernel's client leaves sockets and threads behind.
    ended = subprocess.run([sys.executable, "-m", "docs.notebooks", "--check", *arguments], cwd=ROOT, timeout=280,
                           capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-6000:]
    assert "as they are kept" in ended.stdout
