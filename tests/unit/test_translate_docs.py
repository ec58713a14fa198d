"""docs/guide/translator.md holds the tables that the cases make. ``VISPARK_UPDATE_GOLDEN=1`` writes them anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.golden.language import tables

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[2] / "docs" / "guide" / "translator.md"
_GENERATED = re.compile(r"(<!-- generated from tests/golden -->\n).*?(<!-- end -->)", re.S)


def test_the_language_table_is_that_of_the_cases():
    text = DOCUMENT.read_text()
    wanted = _GENERATED.sub(lambda found: f"{found[1]}\n{tables()}\n{found[2]}", text)
    if os.environ.get("VISPARK_UPDATE_GOLDEN") == "1":
        DOCUMENT.write_text(wanted)
        text = wanted
    assert _GENERATED.search(text)
    assert text == wanted, "docs/guide/translator.md differs; VISPARK_UPDATE_GOLDEN=1 writes it anew"


def test_the_worked_example_is_what_is_in_the_tree():
    root = DOCUMENT.parents[2]
    page = (root / "docs" / "development" / "add_a_numpy_function.md").read_text()
    diffs = re.findall(r"```diff\n--- a/(\S+)\n\+\+\+ b/\S+\n(.*?)```", page, re.S)
    assert len(diffs) == 2
    for file, lines in diffs:
        added = "".join(line.removeprefix("+") + "\n" for line in lines.splitlines())
        assert added in (root / file).read_text(), f"{file} has other lines than the page"
