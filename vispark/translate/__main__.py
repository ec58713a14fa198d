"""``python -m vispark.translate`` prints the functions and methods that a translated function may call."""

from __future__ import annotations

import textwrap

from vispark.translate.language import library, registry


def listed() -> dict[str, list[str]]:
    """Return them by their modules, from the tables that the translator itself looks them up in."""
    by_module: dict[str, list[str]] = {}
    for name in {*registry.names(), *(f"numpy.{name}" for name in library.TYPES)}:
        module, _, last = name.rpartition(".")
        by_module.setdefault(module or "built in", []).append(last)
    by_module["methods and attributes of numbers and arrays"] = [*registry.methods(), *library.PROPERTIES]
    return by_module


def main() -> None:
    """Print them, by their modules."""
    for module, names in sorted(listed().items()):
        print(textwrap.fill(f"{module}: {', '.join(sorted(names))}", 120, subsequent_indent="    "))


if __name__ == "__main__":
    main()
