"""Names of modules of ``pyspark.ml`` that vispark does not replace, such as those of models."""

from __future__ import annotations

from types import ModuleType
from typing import Any


def of_pyspark(module: ModuleType, name: str) -> Any:
    """Return the value of a name in a module of pyspark's, for the module of vispark's that stands in its place.

    Raises
    ------
    AttributeError
        If it has no such name.
    """
    if name.startswith("_") or name not in vars(module):
        ours = module.__name__.replace("pyspark", "vispark", 1)
        raise AttributeError(f"module {ours!r} has no attribute {name!r}", name=name)
    return vars(module)[name]
