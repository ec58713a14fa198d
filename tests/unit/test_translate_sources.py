"""Sources of functions: files, cells of a notebook, ``exec``, partials."""

from __future__ import annotations

import functools
import gc
import importlib.util
import linecache
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from vispark.translate import TranslationError, trace
from vispark.translate.ir import source_text


def _half(x):
    return x / 2


@pytest.mark.parametrize(("fn", "message"), [
    (functools.partial(_half, 1, 2), "gives _half 2 arguments, and it takes 1"),
    (functools.partial(_half, k=1), "gives _half k, which it has no parameter for")])
def test_a_partial_that_does_not_fit(fn: object, message: str):
    with pytest.raises(TranslationError, match=message):
        trace(fn)


def test_a_function_of_a_notebooks_cell():
    source = "def f(x):\n    return print(x)\n"
    linecache.cache["<ipython-input-7>"] = len(source), None, source.splitlines(True), "<ipython-input-7>"
    namespace: dict[str, Any] = {}
    exec(compile(source, "<ipython-input-7>", "exec"), namespace)
    with pytest.raises(TranslationError, match=r"(?s)print is not supported.*return print\(x\)\n +\^") as caught:
        trace(namespace["f"])
    assert (caught.value.file, caught.value.line, caught.value.column) == ("<ipython-input-7>", 2, 12)


def test_several_threads_may_read_sources_at_once():
    """Read them at once: where objects are finalized while a tree is made, another thread may take its turn."""
    names = [f"<ipython-input-{number}>" for number in range(8, 16)]
    source = "def f(x):\n" + "    x = x + 2 * (3 + x)\n" * 50 + "    return x\n"
    functions: list[Any] = []
    for name in names:
        linecache.cache[name] = len(source), None, source.splitlines(True), name
        exec(compile(source, name, "exec"), namespace := {})
        functions.append(namespace["f"])

    def turn(phase: str, info: dict[str, int]) -> None:
        time.sleep(1e-4)

    often = gc.get_threshold()
    gc.callbacks.append(turn)
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert len(list(pool.map(source_text.find, functions))) == len(names)
    finally:
        gc.set_threshold(*often)
        gc.callbacks.remove(turn)


def test_a_function_without_source():
    namespace: dict[str, Any] = {}
    exec("def f(x): return x", namespace)
    with pytest.raises(TranslationError, match="the source of f was not found"):
        trace(namespace["f"])


def test_an_import_inside(tmp_path: Path):
    file = tmp_path / "inside.py"
    file.write_text("def f(x):\n    import math\n    return math.sqrt(x)\n")
    spec = importlib.util.spec_from_file_location("inside", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(TranslationError, match="import is not supported inside a translated function") as caught:
        trace(module.f)
    assert (caught.value.file, caught.value.line, caught.value.column) == (str(file), 2, 5)
