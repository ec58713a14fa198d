"""Elimination of dead C++ code: lines that compute unread values are left out, and so are the loads that only these
lines use.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
_DECLARED = re.compile(r"^\s*(?:const )?[A-Za-z_][\w:<> ]*?[ *]+(?:const )?(?P<name>[A-Za-z_]\w*)(?: = .*|\[\d+\])?;$")
_STORED = re.compile(r"^\s*(?P<name>[A-Za-z_]\w*)(?:\[[^=]*\])? [-+*/|&^]?= .*;$")
_LOOP = re.compile(r"^\s*for \(.*\) \{$")
_HINT = ("VISPARK_UNROLL", "VISPARK_SUM")


def without(lines: list[str]) -> list[str]:
    """Return the lines without variables that are not read, stores into them, and loops that are left empty.

    >>> without(["const float a = x[0];", "const float b = x[1];", "out = a;"])
    ['const float a = x[0];', 'out = a;']
    """
    while True:
        left = _without_empty_loops(_once(lines))
        if left == lines:
            return lines
        lines = left


def _once(lines: list[str]) -> list[str]:
    declared = {found["name"] for line in lines if (found := _DECLARED.match(line))}
    read: set[str] = set()
    for line in lines:
        if not line.strip().startswith(_HINT):
            words = set(_WORD.findall(line))
            own = _DECLARED.match(line) or _STORED.match(line)
            # What a variable's own new value is made of is not read by that.
            read.update(word for word in words if own is None or word != own["name"])
    unread = declared - read
    return [line for line in lines if not _is_of(line, unread)]


def _is_of(line: str, names: set[str]) -> bool:
    found = _DECLARED.match(line) or _STORED.match(line)
    return found is not None and found["name"] in names


def _without_empty_loops(lines: list[str]) -> list[str]:
    found: list[str] = []
    for line in lines:
        if line.strip() == "}" and found and _LOOP.match(found[-1]):
            found.pop()
            while found and found[-1].strip().startswith(_HINT):
                found.pop()
        else:
            found.append(line)
    return found
