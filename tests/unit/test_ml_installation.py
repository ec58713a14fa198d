"""Programs that are not changed get vispark's estimators."""

from __future__ import annotations

import os
import subprocess
import sys

import pyspark.ml.classification

from vispark.ml import classification
from vispark.ml.installation import install, uninstall


def test_names_are_replaced_and_put_back():
    theirs = pyspark.ml.classification.LogisticRegression
    try:
        assert "pyspark.ml.classification.LogisticRegression" in install()
        assert pyspark.ml.classification.LogisticRegression is classification.LogisticRegression
        install()
    finally:
        uninstall()
    assert pyspark.ml.classification.LogisticRegression is theirs


def test_a_program_runs_with_its_arguments(tmp_path):
    program = tmp_path / "app.py"
    program.write_text("import sys\nfrom pyspark.ml.feature import PCA\n"
                       "print(__name__, PCA.__module__, sys.argv[1:])\n")
    ended = subprocess.run([sys.executable, "-m", "vispark.ml", program, "--k", "2"], capture_output=True, text=True,
                           timeout=100, env=os.environ, check=True)
    assert ended.stdout == "__main__ vispark.ml.feature ['--k', '2']\n"


def test_importing_vispark_does_not_import_its_estimators():
    source = "import sys, vispark\nprint([name for name in sys.modules if name.startswith(('vispark.ml', 'scipy'))])"
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=100, check=True)
    assert ended.stdout == "[]\n"
