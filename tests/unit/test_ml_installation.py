"""Programs that are not changed get vispark's estimators."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pyspark.ml.classification
import pyspark.ml.evaluation
import pytest
from pyspark.ml import Estimator

from vispark.ml import classification, clustering, feature, recommendation, regression, tuning
from vispark.ml.__main__ import main
from vispark.ml.evaluation import BY_SPARK
from vispark.ml.installation import BY_MLLIB, ESTIMATORS, EVALUATORS, install, uninstall


def test_names_are_replaced_and_put_back():
    theirs = pyspark.ml.classification.LogisticRegression
    try:
        assert "pyspark.ml.classification.LogisticRegression" in install()
        assert pyspark.ml.classification.LogisticRegression is classification.LogisticRegression
        install()
    finally:
        uninstall()
    assert pyspark.ml.classification.LogisticRegression is theirs


def test_a_name_of_the_package_itself_is_replaced_too():
    try:
        install()
        assert pyspark.ml.Pipeline.__module__ == pyspark.ml.pipeline.Pipeline.__module__ == "vispark.ml.pipeline"
        # PySpark 3.5 writes super(Pipeline, self).
        assert pyspark.ml.Pipeline(stages=[]).getStages() == []
    finally:
        uninstall()
    assert pyspark.ml.Pipeline is pyspark.ml.pipeline.Pipeline
    assert pyspark.ml.Pipeline.__module__ == "pyspark.ml.pipeline"


def test_names_that_vispark_does_not_replace_are_pysparks():
    for module in (classification, clustering, feature, recommendation, regression, tuning):
        theirs = importlib.import_module(module.__name__.replace("vispark", "pyspark"))
        models = [name for name in vars(theirs)
                  if name.endswith("Model") and name[0] != "_" and name not in vars(module)]
        assert models and all(getattr(module, name) is getattr(theirs, name) for name in models)
    with pytest.raises(AttributeError, match=r"module 'vispark\.ml\.tuning' has no attribute 'Nothing'"):
        tuning.Nothing  # noqa: B018 - it raises


def test_a_program_changes_the_name_of_the_package_wherever_it_stands():
    pytest.importorskip("pandas", reason="pyspark.ml.functions needs it before Spark 4")
    program = """
from pyspark.ml import Estimator, Model, PipelineModel, Transformer, stat
from pyspark.ml.base import Estimator as Base
from pyspark.ml.evaluation import RankingEvaluator
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import Vectors
from pyspark.ml.param.shared import HasInputCol
from pyspark.ml.stat import Correlation
from pyspark.ml.util import DefaultParamsWritable
import pyspark.ml.regression
"""
    ours, theirs = dict[str, object](), dict[str, object]()
    exec(program, theirs)
    exec(program.replace("pyspark", "vispark"), ours)
    del ours["vispark"]
    assert all(found is theirs[name] for name, found in ours.items() if name != "__builtins__")
    shared = {each.name for each in pkgutil.iter_modules(pyspark.ml.__path__)}
    assert shared - {"connect", "deepspeed", "dl_util", "model_cache", "tests", "torch"} <= {
        name.removeprefix("vispark.ml.") for name in sys.modules}


def test_each_estimator_of_pyspark_is_ours_or_named_with_a_reason():
    ours, named = {each.__name__ for each in ESTIMATORS}, {*BY_MLLIB, "OneVsRest"}
    guide = (Path(__file__).parents[2] / "docs/guide/ml.md").read_text(encoding="utf-8")
    theirs = set()
    for name in ("classification", "clustering", "feature", "fpm", "pipeline", "recommendation", "regression",
                 "tuning"):
        module = importlib.import_module(f"pyspark.ml.{name}")
        theirs |= {one for one, kind in vars(module).items() if inspect.isclass(kind) and issubclass(kind, Estimator)
                   and kind.__module__ == module.__name__ and not inspect.isabstract(kind) and one[0] != "_"}
    assert theirs <= ours | named and not ours & named
    assert not [one for one in BY_MLLIB if one not in guide]


def test_each_evaluator_of_pyspark_is_ours_or_named_with_a_reason():
    guide = (Path(__file__).parents[2] / "docs/guide/ml.md").read_text(encoding="utf-8")
    theirs = {name for name, kind in vars(pyspark.ml.evaluation).items() if inspect.isclass(kind)
              and issubclass(kind, pyspark.ml.evaluation.JavaEvaluator) and not inspect.isabstract(kind)
              and kind is not pyspark.ml.evaluation.JavaEvaluator}
    assert {each.__name__ for each in EVALUATORS} | set(BY_SPARK) == theirs
    assert not [one for one in theirs if one not in guide]


@pytest.mark.slow
def test_a_program_runs_with_its_arguments(tmp_path):
    program = tmp_path / "app.py"
    (tmp_path / "beside.py").write_text("from pyspark.ml.feature import PCA\n")
    program.write_text("import sys\nfrom beside import PCA\n"
                       "print(__name__, PCA.__module__, sys.argv[1:])\n")
    ended = subprocess.run([sys.executable, "-m", "vispark.ml", program, "--k", "2"], capture_output=True, text=True,
                           timeout=100, env=os.environ, check=True)
    assert ended.stdout == "__main__ vispark.ml.feature ['--k', '2']\n"


def test_what_is_no_program_is_said_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    (tmp_path / "cells.ipynb").write_text("{}")
    for path, words in (("nowhere.py", "there is no program 'nowhere.py'"), (tmp_path, "without a __main__.py"),
                        (tmp_path / "cells.ipynb", "call vispark.ml.install() in its first cell")):
        assert main([str(path)]) == 2
        printed = capsys.readouterr().err
        assert printed.startswith("vispark.ml: ") and words in printed and printed.count("\n") == 1


def test_importing_vispark_does_not_import_its_estimators():
    source = "import sys, vispark\nprint([name for name in sys.modules if name.startswith(('vispark.ml', 'scipy'))])"
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=100, check=True)
    assert ended.stdout == "[]\n"


@pytest.mark.parametrize("module", ["classification", "clustering", "feature", "pipeline", "recommendation",
                                    "regression", "tuning"])
def test_names_that_are_not_ours_are_those_of_pyspark(module: str):
    ours, theirs = (importlib.import_module(f"{package}.ml.{module}") for package in ("vispark", "pyspark"))
    assert all(hasattr(ours, name) for name in getattr(theirs, "__all__", ("Pipeline", "PipelineModel")))
    with pytest.raises(AttributeError):
        _ = ours.Nothing
