"""Classes have names of their own, and docstrings begin as they should."""

from __future__ import annotations

import pytest

from tests.policy import words
from tests.policy.test_layers import FILES
from tests.policy.test_repository import FILES as REPOSITORY
from tests.policy.test_repository import ROOT

#: Files whose text is that of their time, and this rule with its test.
_OLD = ("CHANGELOG.md", "docs/decisions/", "docs/development/reproductions.md", "tests/policy/")
#: What holds the rules of names and docstrings: what users install, run and read, and what tests and measures that.
_RULED = ("vispark/", "gpu_worker/", "examples/", "docs/", "tests/", "benchmarks/")
#: Files of C++, and packages that write C++ or have it in literals.
_CPP = (".h", ".cu", ".cpp", ".c")
_WRITERS = ("vispark/translate/", "vispark/plan/", "gpu_worker/device/", "gpu_worker/execution/")
SOURCES = {path: (ROOT / path).read_text(encoding="utf-8") for path in FILES}


def test_no_two_classes_or_types_have_one_name():
    # benchmarks/unseen has programs as users write them, who know none of our names.
    sources = {path: (ROOT / path).read_text(encoding="utf-8") for path in REPOSITORY
               if path.endswith(".py") and not path.startswith("benchmarks/unseen/")}
    assert {"tests/policy/words.py", "benchmarks/loops.py"} <= sources.keys()
    assert {name: places for name, places in words.classes(sources).items() if len(places) > 1} == {}


def test_an_idea_has_the_word_of_the_field():
    texts = [path for path in REPOSITORY if path.endswith((".py", ".md", *_CPP)) and not path.startswith(_OLD)]
    assert [one for path in texts for one in words.strange((ROOT / path).read_text(encoding="utf-8"), path)] == []


@pytest.mark.parametrize("text", ["The vessel.", "def _open_desk(): ...", "class GivenLoan: ...", "# Errands of a day"])
def test_a_strange_word_is_found(text: str):
    assert len(list(words.strange(text, "a.py"))) == 1


def test_a_word_within_another_is_none():
    assert list(words.strange("desktop investigator bloans", "a.md")) == []


def test_names_say_what_they_are():
    texts = [path for path in REPOSITORY if path.endswith(".py") and not path.startswith(_OLD)]
    assert [one for path in texts for one in words.strange_names((ROOT / path).read_text(encoding="utf-8"), path)] == []


@pytest.mark.parametrize("source", ["_room = 1\n", "def told(): ...\n", "x.has_room()\n", "class Told: ...\n"])
def test_a_strange_name_is_found(source: str):
    assert len(list(words.strange_names(source, "a.py"))) == 1


def test_names_of_kernels_say_what_they_are():
    texts = [path for path in REPOSITORY if path.endswith(_CPP) and not path.startswith(_OLD)]
    assert len(texts) > 100
    assert [one for path in texts
            for one in words.strange_cpp_names((ROOT / path).read_text(encoding="utf-8"), path)] == []


def test_names_in_what_writes_kernels_say_what_they_are():
    texts = [path for path in SOURCES if path.startswith(_WRITERS)]
    assert len(texts) > 100
    assert [one for path in texts for one in words.strange_names_in_templates(SOURCES[path], path)] == []


@pytest.mark.parametrize("source", [
    "struct Room {};", "int x = room.counts[0];", "Bar landed[4];", "template <class Found> void f();",
    "#define EACH 8", "const int left_apart = 1;", "Word* ticket;", "int n = 40'000'000, given = 1;",
    "float made = 0;  // given", "/* none */ int mine;"])
def test_a_strange_name_of_a_kernel_is_found(source: str):
    assert len(list(words.strange_cpp_names(source, "a.h"))) == 1


@pytest.mark.parametrize("source", ["// no room is found", "/* given\n each */ int a;", 'fail("no room for each");',
                                    "char c = 'a';", "int separate, foundation;"])
def test_comments_and_literals_of_kernels_are_not_looked_at(source: str):
    assert list(words.strange_cpp_names(source, "a.h")) == []


def test_a_strange_name_in_what_writes_a_kernel_is_found():
    source = ('"""Find room;"""\n' 'add(f"int {name} = found;", "no room is given", f"{found} goes;")\n'
              'TEXT = """\nint a;\nint mine;\n"""\n')
    assert sorted(words.strange_names_in_templates(source, "a.py")) == [
        "a.py:2 is called 'found': name the thing", "a.py:5 is called 'mine': name the thing"]


def test_names_of_tests_and_text_are_not_looked_at():
    assert list(words.strange_names('def test_it_has_room():\n    """There is room."""    # as told\n', "a.py")) == []


def test_parameters_and_locals_name_a_thing():
    paths = [path for path in REPOSITORY if path.startswith(_RULED) and path.endswith(".py")]
    assert [place for path in paths for place in words.nameless((ROOT / path).read_text(encoding="utf-8"), path)] == []


@pytest.mark.parametrize("source", [
    "def f():\n    found = 1\n", "def f(given): ...\n", "def f(*said): ...\n", "async def f(*, made=1): ...\n",
    "def f():\n    for each in (): ...\n", "def f():\n    with a() as (b, mine): ...\n",
    "def f():\n    try: ...\n    except E as told: ...\n", "def f():\n    g(x=(found := 1))\n",
    "def f():\n    match a:\n        case [b, *ones]: ...\n", "class A:\n    def f(self):\n        _found: int = 1\n",
    "def f():\n    def g():\n        found = 1\n"])
def test_a_name_that_says_nothing_is_found(source: str):
    assert len(list(words.nameless(source, "a.py"))) == 1


@pytest.mark.parametrize("source", [
    "def f():\n    return [each for each in found]\n", "def f():\n    return sorted(a, key=lambda each: each.b)\n",
    "def f(self):\n    self.found = 1\n", "def f():\n    g(found=1)\n", "class A:\n    found: int\n"])
def test_an_expression_may_call_its_element_so(source: str):
    assert list(words.nameless(source, "a.py")) == []


def test_docstrings_begin_with_a_verb_or_a_kind():
    paths = [path for path in REPOSITORY if path.startswith(_RULED) and path.endswith(".py")]
    assert [place for path in paths for place in words.openings((ROOT / path).read_text(encoding="utf-8"), path)] == []


def test_docstrings_refer_to_what_is_there():
    assert list(words.dangling(SOURCES)) == []


def test_a_reference_to_nothing_is_found():
    sources = {"vispark/a.py": '"""See :meth:`A.gone` and :meth:`A.there`, :func:`numpy.ravel`, :mod:`vispark.a`."""\n'
                               "class A:\n    def there(self): ...\n"}
    assert list(words.dangling(sources)) == ["vispark/a.py:1 refers to 'A.gone', which is nowhere"]


def test_two_classes_of_one_name_are_found():
    places = words.classes({"a.py": "class A: ...\nclass B: ...\n", "b.py": "def f():\n    class A: ...\n"})
    assert places == {"A": ["a.py:1", "b.py:2"], "B": ["a.py:2"]}


def test_a_type_with_the_name_of_a_class_is_found_and_a_type_variable_is_not():
    places = words.classes({"a.py": "class Step: ...\n_T = TypeVar('_T')\nTo = typing.TypeVar('To')\nMOST = 1\n",
                            "b.py": "Step = int | str\nOther: TypeAlias = 'int'\nStill: int\n"})
    assert places == {"Step": ["a.py:1", "b.py:1"], "Other": ["b.py:2"]}


@pytest.mark.parametrize("source", [
    'def f():\n    """What comes."""\n', 'def f():\n    """The result."""\n', 'async def f():\n    """``a`` or b."""\n',
    'def f():\n    """Writes a line."""\n',
    'def f():\n    """Cells beyond."""\n', 'def f():\n    """TLS of it."""\n',
    'def f():\n    """"" of none."""\n',
    'def f():\n    """Return what comes."""\n', 'def f():\n    """Yield the same once more."""\n',
    'class A:\n    """How it ended."""\n', 'class A:\n    """Writes the kernel."""\n', '"""What runs here."""\n'])
def test_a_violation_is_found(source: str):
    assert len(list(words.openings(source, "a.py"))) == 1


@pytest.mark.parametrize("source", [
    'def f():\n    """Return the number."""\n', 'class A:\n    """A result."""\n', '"""Results of plans."""\n',
    'def f():\n    """Pass a message on."""\n',
    "def f(): ...\n", 'class A:\n    @property\n    def size(self):\n        """The size in bytes."""\n'])
def test_what_is_allowed_passes(source: str):
    assert list(words.openings(source, "a.py")) == []
