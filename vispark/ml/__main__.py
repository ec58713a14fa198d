"""Runner of a program as it is, with vispark's estimators in place of pyspark's: ``python -m vispark.ml app.py``."""

from __future__ import annotations

import runpy
import sys

from vispark.ml.installation import install


def main(arguments: list[str]) -> int:
    """Run the program that the first argument names, with the others as its own."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: python -m vispark.ml PROGRAM.py [ARGUMENT]...\n\n"
              "Runs a PySpark program with vispark's estimators in place of pyspark.ml's.",
              file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    install()
    sys.argv = arguments
    runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
