"""Packages that only some inputs need, with the command that installs them where they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from vispark.migrate.errors import MissingPackage


def required(package: str, extra: str, purpose: str) -> Any:
    """Return a package, imported.

    Raises
    ------
    MissingPackage
        If it is not installed; the message says what for, and how to install it.

    Examples
    --------
    >>> required("json", "migrate", "reading JSON").dumps(1)
    '1'
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        raise MissingPackage(f"{purpose} needs the package {package!r}: pip install 'vispark[{extra}]'") from error
