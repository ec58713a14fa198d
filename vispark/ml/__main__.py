"""Runner of a program as it is, with vispark's estimators in place of pyspark's: ``python -m vispark.ml app.py``.

The program sees what it would see of ``python app.py``: modules beside it, its arguments, its name.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from vispark.ml.installation import install


def main(arguments: list[str]) -> int:
    """Run the program that the first argument names, with the others as its own."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: python -m vispark.ml PROGRAM.py [ARGUMENT]...\n\n"
              "Runs a PySpark program with vispark's estimators in place of pyspark.ml's.",
              file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    if refusal := _refusal(arguments[0]):
        print(f"vispark.ml: {refusal}", file=sys.stderr)
        return 2
    install()
    sys.argv = arguments
    if not sys.flags.safe_path:
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
    runpy.run_path(arguments[0], run_name="__main__")
    return 0


def _refusal(program: str) -> str:
    """Return the reason why a path is no program; empty where it may be one."""
    if not os.path.exists(program):
        return f"there is no program {program!r}"
    if os.path.isdir(program) and not os.path.exists(os.path.join(program, "__main__.py")):
        return f"{program!r} is a folder without a __main__.py"
    if program.endswith(".ipynb"):
        return f"{program!r} is a notebook: call vispark.ml.install() in its first cell"
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
