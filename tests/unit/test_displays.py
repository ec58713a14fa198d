"""Displays in notebooks: the text says all that the HTML says, and nothing of the user's is taken for markup."""

from __future__ import annotations

import html
import re
import subprocess
import sys

import pytest

import vispark
from vispark._utils.displays import Explanation

#: Objects that are shown without a session, each with something to escape.
SHOWN = {
    "grid": vispark.Grid((4, 6), splits=(2, 1), boundary=("periodic", (0.0, "mirrored")), fields={"<u>": "f4"}),
    "plan": Explanation('before\n== Plan ==\nvmap a < b & "c"\n  send\n== Way ==\ndirect: <none>'),
    "profile": vispark.Profile(total=2.0),
}


def words(text: str) -> list[str]:
    """Return the words of HTML that a reader sees."""
    return html.unescape(re.sub(r"<[^>]*>", " ", text)).split()


@pytest.mark.parametrize("name", SHOWN)
def test_the_text_says_all_that_the_html_says(name: str):
    data = SHOWN[name]._repr_mimebundle_()
    assert set(data) == {"text/plain", "text/html"}
    # A repr has "halo=(1, 1)", and a table "halo" and "(1, 1)".
    text = data["text/plain"]
    missing = [word for word in words(data["text/html"]) if word not in text]
    assert not missing, missing


@pytest.mark.parametrize("name", SHOWN)
def test_text_of_the_user_is_escaped(name: str):
    markup = SHOWN[name]._repr_mimebundle_()["text/html"]
    allowed = {"table", "caption", "tr", "th", "td", "details", "summary", "pre"}
    assert set(re.findall(r"</?([a-z]+)", markup)) <= allowed
    assert "<u>" not in markup and "<none>" not in markup


def test_words_stand_to_the_left_and_numbers_to_the_right():
    # Jupyter's own styles put every cell to the right, and wrap lines in a proportional font.
    for name in ("grid", "profile"):
        cells = re.findall(r"<(?:th|td|caption)(.*?)>(.*?)</", SHOWN[name]._repr_mimebundle_()["text/html"])
        for style, words in cells:
            number = re.fullmatch(r"[\d.]+ [s%]", words) or (name == "profile" and not words)
            assert f"text-align:{'right' if number else 'left'}" in style or not words, (style, words)
    lines = SHOWN["plan"]._repr_mimebundle_()["text/html"]
    assert lines.count('<pre style="font-family:monospace;white-space:pre;') == lines.count("<pre") == 3


def test_only_what_is_asked_for_is_given():
    grid = SHOWN["grid"]
    assert grid._repr_mimebundle_(include={"text/plain"}) == {"text/plain": repr(grid)}
    assert set(grid._repr_mimebundle_(exclude={"text/plain"})) == {"text/html"}


def test_an_explanation_is_a_string():
    text = Explanation("== Plan ==\nsend")
    assert text == "== Plan ==\nsend" and isinstance(text, str) and hash(text) == hash(str(text))
    assert text._repr_mimebundle_()["text/plain"] == text


def test_a_profile_has_a_short_repr():
    profile = vispark.Profile(total=2.0)
    assert repr(profile) == "Profile(2.000 s: driver 2.000 s)"
    profile.add("reduce", {"kernel": 1.5}, profile.started, "worker")
    assert repr(profile) == "Profile(2.000 s: kernel 1.500 s, driver 0.500 s)"


@pytest.mark.slow
def test_displays_import_nothing():
    code = "import sys, vispark; vispark.Grid((4, 4))._repr_mimebundle_(); " \
           "print([each for each in ('IPython', 'matplotlib', 'ipywidgets') if each in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert ended.stdout == "[]\n"
