"""What is kept of a run: figures as JSON, the table of what was covered as Markdown."""

from __future__ import annotations

import json
import platform
from argparse import Namespace
from collections import Counter
from pathlib import Path

import numpy as np

from tests.property.differential.campaign import LACKS, RAISES, RUNS, WRONG, Key, Tally
from tests.property.differential.coverage import nodes
from tests.property.differential.data import DTYPES

#: How often each node and function should meet each dtype.
WANTED = 500


def short_of(tally: Tally) -> dict[str, int]:
    """Nodes, operators and functions with the dtypes that they met less often than wanted."""
    return {f"{name} of {dtype}": count for (name, dtype), count in sorted(tally.pairs.items()) if count < WANTED}


def summary(tally: Tally, verdicts: dict[Key, tuple[str, str]], seconds: float) -> str:
    """A few lines."""
    kinds = Counter(kind for kind, _ in verdicts.values())
    wrong = sorted({f"  {text} of {dtype} with {other}: {words}" for (text, dtype, other, _), (kind, words) in
                    verdicts.items() if kind == WRONG})
    lines = [f"{tally.cases:,} functions on {tally.elements:,} elements in {seconds:,.0f} s: "
             f"{len(tally.differences)} differ"]
    if verdicts:
        lines.append(f"templates with dtypes: {kinds[RUNS]:,} run, {kinds[RAISES]:,} are errors in Python and here, "
                     f"{kinds[LACKS]:,} are errors here alone, {kinds[WRONG]} are none here and errors in Python")
        short, least = short_of(tally), min(tally.pairs.values(), default=0)
        lines.append(f"{len(tally.pairs) - len(short):,} of {len(tally.pairs):,} pairs of a node, operator or function "
                     f"and a dtype were met {WANTED} times or more; the least {least} times")
    lines += wrong[:20]
    lines.append("seconds of all processes: " + ", ".join(f"{name} {value:,.0f}" for name, value in
                                                          tally.seconds.items()))
    return "\n".join(lines)


def table(tally: Tally) -> str:
    """How often each node, operator and function met each dtype."""
    names = sorted({name for name, _ in tally.pairs}, key=lambda name: (name not in nodes(), name))
    lines = ["| | " + " | ".join(DTYPES) + " |", "|---" * (len(DTYPES) + 1) + "|"]
    for name in names:
        counts = (f"{tally.pairs[name, dtype]:,}" if tally.pairs[name, dtype] else "" for dtype in DTYPES)
        shown = f"`{name}`".replace("|", "\\|")
        lines.append(f"| {shown} | " + " | ".join(counts) + " |")
    return "\n".join(lines)


def written(file: str, given: Namespace, tally: Tally, verdicts: dict[Key, tuple[str, str]], seconds: float) -> None:
    """Keep a run."""
    kinds = Counter(kind for kind, _ in verdicts.values())
    lacks = sorted({(text, dtype, words) for (text, dtype, _, _), (kind, words) in verdicts.items() if kind == LACKS})
    kept = {
        "device": given.device, "seed": given.seed, "functions": tally.cases, "elements": tally.elements,
        "differences": tally.differences, "seconds": round(seconds, 1), "jobs": given.jobs,
        "machine": platform.machine(), "python": platform.python_version(), "numpy": np.__version__,
        "verdicts": dict(kinds), "pairs": len(tally.pairs), "met often enough": len(tally.pairs) - len(short_of(tally)),
        "not in the language": sorted({words for _, _, words in lacks}),
    }
    Path(file).write_text(json.dumps(kept, indent=1) + "\n")
    words = summary(tally, verdicts, seconds).replace("\n", "\n\n")
    Path(file).with_suffix(".md").write_text(
        f"# Generated functions on `{given.device}`\n\n{words}\n\n## How often each met each dtype\n\n{table(tally)}\n")
