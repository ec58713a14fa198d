"""Calls of the user's, as Spark's pages name them."""

from __future__ import annotations

from vispark._utils import boundary, callers


def test_the_innermost_call_of_the_users_is_named():
    assert callers.user_call().partition(" at ")[2].startswith(f"{__file__}:")


def test_a_thread_may_act_for_another_ones_call(monkeypatch):
    monkeypatch.setattr(callers, "_PACKAGES", ("/", "<"))     # <string> is the frame of a process that runs tests
    assert callers.user_call() == ""
    with callers.called_from("count at loop.py:7"):
        assert callers.user_call() == "count at loop.py:7"
    assert callers.user_call() == ""


class _Java:
    """Stand-in for a JavaSparkContext, with what it is heard."""

    def __init__(self, site=None):
        self.site, self.heard = site, []

    def getLocalProperty(self, name):
        return self.site if name == "callSite.short" else None

    def setCallSite(self, site):
        self.site = site
        self.heard.append(site)


class _Context:
    def __init__(self, java):
        self._jsc = java


def test_what_names_another_call_already_is_left_alone():
    own, other = _Java(), _Java("of a recording")
    with callers.call_site(_Context(own), "sum at a.py:1"), callers.call_site(_Context(own), "inner at b.py:2"):
        assert own.site == "sum at a.py:1"
    with callers.call_site(_Context(other), "sum at a.py:1"), callers.call_site(_Context(own), ""):
        assert other.site == "of a recording"
    assert own.heard == ["sum at a.py:1", None] and other.heard == []


def test_a_call_has_the_name_that_the_user_wrote():
    """Not that of what is around it, which cuts errors."""
    inside = compile("def count():\n    return user_call()", callers.__file__, "exec")
    exec(inside, names := {"user_call": callers.user_call})
    assert boundary.brief(names["count"])().startswith(f"count at {__file__}:")
