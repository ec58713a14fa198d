"""Record of a run: figures as JSON, the table of what was covered as Markdown."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tests.property.differential.campaign import WANTED, Tally, short_of
from tests.property.differential.coverage import OperatorPair, is_syntax, nodes
from tests.property.differential.data import DTYPES
from tests.property.differential.probes import EXACT, PROBES, Equal
from tests.property.differential.verdicts import LACKS, RAISES, RUNS, WRONG, Judged, VerdictKey

_ROOT = Path(__file__).parents[3]
Verdicts = Mapping[VerdictKey, Judged]


def summary(tally: Tally, verdicts: Verdicts, seconds: float) -> str:
    """Return the figures of a run in a few lines."""
    lines = [f"{tally.functions:,} functions, each of its own for its dtypes and lengths, on {tally.records:,} records "
             f"in {seconds:,.0f} s: {len(tally.differences)} differ"]
    if verdicts:
        kinds = Counter(one.kind for one in verdicts.values())
        lines.append(f"templates with dtypes: {kinds[RUNS]:,} run, {kinds[RAISES]:,} are errors in Python and here, "
                     f"{kinds[LACKS]:,} are errors here alone, {kinds[WRONG]} are none here and errors in Python")
    if tally.functions:
        lines += [_met(tally, verdicts, True), _met(tally, verdicts, False)]
    lines += sorted({f"  {key.text} of {key.dtype} with {key.other}: {one.words}" for key, one in verdicts.items()
                     if one.kind == WRONG})[:20]
    lines.append("processor seconds: " + ", ".join(f"{name} {value:,.0f}" for name, value in tally.seconds.items()))
    return "\n".join(lines)


def _met(tally: Tally, verdicts: Verdicts, syntax: bool) -> str:
    """Return the numbers of pairs of one sort, and of those that were met often enough, in words."""
    pairs = [pair for pair in tally.pairs if is_syntax(pair[0]) == syntax]
    short = [pair for pair in short_of(tally, verdicts) if is_syntax(pair[0]) == syntax]
    sort, counted = ("a node or an operator", "functions") if syntax else ("a function or an attribute", "records")
    least = min(pairs, key=tally.times, default=("", ""))
    reached = len(set(pairs) | set(short))
    words = (f"{reached - len(short):,} of the {reached:,} pairs of {sort} with a dtype were met in at least {WANTED} "
             f"{counted}; the least, {' of '.join(least)}, in {tally.times(least):,}")
    if not verdicts:
        return words
    kinds = Counter(kind for (name, _), (kind, _) in _unmet(tally, verdicts).items() if is_syntax(name) == syntax)
    others = ", ".join(f"{count:,} {_KIND_NAMES[kind]}" for kind, count in sorted(kinds.items()))
    return f"{words}. Of the {kinds.total():,} others {others or 'there are none'}"


#: What the pairs are that no function met, by the verdict on the shortest template.
_KIND_NAMES = {RAISES: "are errors, in Python and here, which was checked",
               LACKS: "are errors here alone, which was checked",
               WRONG: "are errors in Python alone", "": "have no template"}


def table(tally: Tally) -> str:
    """Return the functions in which each node, operator and function met each dtype."""
    names = sorted({name for name, _ in tally.pairs}, key=lambda name: (name not in nodes(), not is_syntax(name), name))
    lines = ["| | " + " | ".join(DTYPES) + " |", "|---" * (len(DTYPES) + 1) + "|"]
    for name in names:
        counts = (f"{tally.pairs[name, dtype]:,}" if tally.pairs[name, dtype] else "" for dtype in DTYPES)
        lines.append(f"| {_shown(name)} | " + " | ".join(counts) + " |")
    return "\n".join(lines)


def _shown(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def impossible(tally: Tally, verdicts: Verdicts) -> str:
    """Return the pairs that no function met, with what is said where one is written."""
    lacks: dict[tuple[str, str], list[str]] = {}
    for (name, dtype), (kind, words) in _unmet(tally, verdicts).items():
        lacks.setdefault((name, f"{kind}: {words}"), []).append(dtype)
    lines = ["| | of | what is said |", "|---|---|---|"]
    lines += [f"| {_shown(name)} | {', '.join(dtypes)} | {_shown(words)} |" for (name, words), dtypes in lacks.items()]
    return "\n".join(lines)


def _unmet(tally: Tally, verdicts: Verdicts) -> dict[OperatorPair, tuple[str, str]]:
    """Return the pairs that no function met and no template meets, with the verdict on one and what is said."""
    reached = set(tally.pairs) | set(short_of(tally, verdicts))
    shortest = _shortest_refused(verdicts)
    names = {*nodes(), *(name for one in verdicts.values() for name in one.names), *(name for name, _ in tally.pairs)}
    runs = ("", "its templates run without it")
    return {(name, dtype): shortest.get((name, dtype), (0, *runs))[1:] for name in sorted(names)
            for dtype in DTYPES if (name, dtype) not in reached}


def _shortest_refused(verdicts: Verdicts) -> dict[OperatorPair, tuple[int, str, str]]:
    """Return, for each name and dtype, the shortest template that has the one and does not run with the other: its
    length, the verdict and what is said.

    One pass over the verdicts for the names of each template, and one for those that do not run, as there are 10^5.
    """
    names: dict[str, set[str]] = {}
    for key, one in verdicts.items():
        names.setdefault(key.text, set()).update(one.names)
    shortest: dict[OperatorPair, tuple[int, str, str]] = {}
    for key, one in verdicts.items():
        if one.kind != RUNS:
            refused = len(key.text), one.kind, one.words
            for name in names[key.text]:
                pair = name, key.dtype
                shortest[pair] = min(refused, shortest.get(pair, refused))
    return shortest


def rounding() -> str:
    """Return the table of the rules by which values of templates count as equal."""
    rules: dict[Equal, list[str]] = {}
    for probe in PROBES:
        rules.setdefault(probe.equal, []).append(probe.text)
    lines = ["Integers and bools are equal. Of a float x of a dtype with the epsilon e (float16 2^-10, float32 2^-23, "
             "float64 2^-52) a kernel's value may be off by `units` e |x| and by `absolute` e; where an operand is "
             "complex also by `parts` e |x|. A NaN is a NaN. What is so near the largest number may be infinite.",
             "", "| units | absolute | parts | | templates |", "|---|---|---|---|---|"]
    for equal, texts in rules.items():
        zero = "a zero of either sign" if equal.zero else "of the type of the way taken" if equal.promoted else ""
        shown = "all others" if equal == EXACT else ", ".join(map(_shown, texts))
        lines.append(f"| {equal.units:g} | {equal.absolute:g} | {equal.parts:g} | {zero} | {shown} |")
    return "\n".join(lines)


def written(args: Namespace, command: str, tally: Tally, verdicts: Verdicts, seconds: float) -> None:
    """Keep a run."""
    kinds = Counter(one.kind for one in verdicts.values())
    short = short_of(tally, verdicts)
    kept = {
        "command": command, "commit": commit_of(_ROOT), "device": args.device, "seed": args.seed,
        "functions": tally.functions, "records": tally.records, "differences": tally.differences,
        "seconds": round(seconds, 1), "jobs": args.jobs,
        "processor seconds": {name: round(value) for name, value in tally.seconds.items()},
        "machine": platform.machine(), "python": platform.python_version(), "numpy": np.__version__,
        "verdicts": dict(kinds), "pairs": len(tally.pairs), "met often enough": len(tally.pairs) - len(short),
        "not often enough": {" of ".join(pair): count for pair, count in short.items()},
        "not in the language": sorted({one.words for one in verdicts.values() if one.kind == LACKS}),
    }
    Path(args.keep).write_text(json.dumps(kept, indent=1) + "\n")
    words = summary(tally, verdicts, seconds).replace("\n", "\n\n")
    parts = [f"# Generated functions on `{args.device}`", f"`{command}` at {kept['commit']}", words,
             "## Functions in which each met each dtype", table(tally)]
    if verdicts:
        parts += ["## What cannot be met", "What the shortest template of each says where it is written for the dtype.",
                  impossible(tally, verdicts)]
    parts += ["## What counts as equal", rounding()]
    Path(args.keep).with_suffix(".md").write_text("\n\n".join(parts) + "\n")


def commit_of(root: Path) -> str:
    """Return the commit of a working tree, and whether it has changes that count; ``VISPARK_COMMIT`` where there is no
    git.
    """
    if "VISPARK_COMMIT" in os.environ:
        return os.environ["VISPARK_COMMIT"]

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False).stdout.strip()
    changed = git("status", "--porcelain", "--", "vispark", "gpu_worker", "tests")
    return git("rev-parse", "HEAD") + (" with changes" if changed else "")
