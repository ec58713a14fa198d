"""Classes keep to limits that say something of their design: methods, attributes, depth of inheritance."""

from __future__ import annotations

import pytest

from tests.policy import classes
from tests.policy.test_layers import FILES
from tests.policy.test_repository import ROOT


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return {path: (ROOT / path).read_text(encoding="utf-8") for path in FILES}


def test_classes_keep_to_the_limits(sources: dict[str, str]):
    assert list(classes.too_large(sources, classes.ABOVE)) == []


def test_classes_that_may_be_above_are_there(sources: dict[str, str]):
    assert not classes.ABOVE.keys() - classes.classes(sources).keys()


def _class(name: str, base: str, count: int) -> str:
    methods = "".join(f"    def {name.lower()}{number}(self):\n        self._one = 1\n" for number in range(count))
    return f"class {name}({base}):\n{methods or '    pass'}\n"


def _found(source: str, above: dict[str, tuple[int, int]] | None = None) -> list[str]:
    return list(classes.too_large({"vispark/a.py": source}, above or {}))


def test_a_large_class_is_found_in_one_piece_and_in_mixins():
    assert _found(_class("One", "object", 26)) == ["vispark/a.py:1 One has 26 public methods, more than 25"]
    assert len(_found(_class("Half", "object", 13) + _class("Whole", "Half", 13))) == 1
    assert not _found(_class("Half", "object", 13) + _class("Whole", "Half", 12))


def test_many_attributes_are_found():
    source = "class One:\n    def __init__(self):\n" + "".join(f"        self.a{i}: int = {i}\n" for i in range(17))
    assert _found(source) == ["vispark/a.py:1 One has 17 attributes, more than 16"]


def test_a_deep_chain_is_found_and_a_shallow_one_is_not():
    chain = "".join(_class(f"Link{i}", f"Link{i - 1}" if i else "object", 0) for i in range(5))
    assert _found(chain) == ["vispark/a.py:9 Link4 inherits 4 deep, more than 3"]


def test_a_class_that_is_no_longer_above_leaves_the_list():
    assert _found(_class("One", "object", 3), {"One": (30, 16)}) == [
        "vispark/a.py:1 One is within the limits; take it out of ABOVE"]
