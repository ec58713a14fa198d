"""``python -m vispark.translate`` prints the functions and methods that a translated function may call."""

from __future__ import annotations

import textwrap

from vispark.translate.language import library


def main() -> None:
    """Print them, by their modules."""
    by_module: dict[str, list[str]] = {}
    for name in library.names():
        module, _, last = name.rpartition(".")
        by_module.setdefault(module or "built in", []).append(last)
    by_module["methods and attributes of numbers and arrays"] = [*library.METHODS, *library.PROPERTIES]
    for module, names in sorted(by_module.items()):
        print(textwrap.fill(f"{module}: {', '.join(sorted(names))}", 120, subsequent_indent="    "))


if __name__ == "__main__":
    main()
