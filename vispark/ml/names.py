"""Modules of ``pyspark.ml``, and names in them, that vispark does not replace, such as those of models."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

#: The modules that vispark has nothing for.
SHARED = ("common", "fpm", "image", "linalg", "param", "param.shared", "stat", "tree", "util", "wrapper")


def share_modules() -> None:
    """Let modules that vispark has nothing for be those of pyspark, under their names in ``vispark.ml`` too."""
    for name in SHARED:
        module = importlib.import_module(f"pyspark.ml.{name}")
        sys.modules[f"vispark.ml.{name}"] = module
        if "." not in name:
            setattr(sys.modules["vispark.ml"], name, module)


def of_pyspark(module: ModuleType, name: str) -> Any:
    """Return the value of a name in a module of pyspark's, for the module of vispark's that stands in its place.

    Raises
    ------
    AttributeError
        If it has no such name.
    """
    if name.startswith("_") or name not in vars(module):
        module_here = module.__name__.replace("pyspark", "vispark", 1)
        raise AttributeError(f"module {module_here!r} has no attribute {name!r}", name=name)
    return vars(module)[name]
