"""Counter of the repository's lines by area, at one commit and at a later one: ``python -m docs.lines FROM [TO]``."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import click

#: Area: the folders it is in, and how its files' names end.
AREAS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "vispark, the translator": (("vispark/translate",), (".py",)),
    "vispark, the rest": (("vispark", ":!vispark/translate"), (".py",)),
    "gpu_worker": (("gpu_worker",), (".py",)),
    "kernels and headers": (("gpu_worker", ":!*/nvrtc_headers/*"), (".cu", ".cuh", ".h", ".cpp")),
    "tests": (("tests", ":!tests/golden"), (".py",)),
    "golden files": (("tests/golden",), (".cu", ".py", ".txt")),
    "benchmarks": (("benchmarks",), (".py",)),
    "pages": (("docs", "README.md"), (".md",)),
}


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def size(commit: str, folders: Sequence[str], ends: tuple[str, ...]) -> tuple[int, int]:
    """Return the number of files of an area at a commit, and of their lines."""
    empty = _git("hash-object", "-t", "tree", "/dev/null").strip()
    added = [line.split("\t") for line in _git("diff", "--numstat", empty, commit, "--", *folders).splitlines()]
    lines = [int(count) for count, _, path in added if path.endswith(ends)]
    return len(lines), sum(lines)


def gone(start: str, end: str, folders: Sequence[str], ends: tuple[str, ...]) -> int:
    """Return the number of an area's lines at the first commit that are not there at the second, moved files counted as
    moved.
    """
    changes = _git("diff", "-M", "-l0", "--numstat", start, end, "--", *folders)
    changed = [line.split("\t") for line in changes.splitlines()]
    return sum(int(count) for _, count, path in changed if path.rstrip("}").endswith(ends) and count != "-")


@click.command(help=__doc__)
@click.argument("start", metavar="FROM")
@click.argument("end", metavar="[TO]", default="HEAD")
def main(start: str, end: str) -> None:
    """Print a table in Markdown."""
    print("| | files before | lines before | lines that went | lines that came | lines now | files now |")
    print("|---" * 7 + "|")
    for area, (folders, ends) in AREAS.items():
        (files, before), (files_now, now) = size(start, folders, ends), size(end, folders, ends)
        went = gone(start, end, folders, ends)
        print(f"| {area} | {files:,} | {before:,} | {went:,} | {now - before + went:,} | {now:,} | {files_now:,} |")


if __name__ == "__main__":
    main()
