"""python -m tests.property.faults [--jobs 2] [--only NAME] [--every 10] [--keep docs/faults.md]

Sows each fault in a copy of the translator and runs the fast tests on it. Exits with 1 if a fault was not caught.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.property.differential.report import commit_of
from tests.property.faults.sowing import FAST, FAULTS, ROOT, FaultOutcome, caught_before, copy, run, table

KEPT = ROOT / "benchmarks" / "results" / "translator" / "faults.md"


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.faults", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1, help="faults at once")
    parser.add_argument("--only", default="", help="sow the faults whose name has this in it")
    parser.add_argument("--every", type=int, default=1, help="sow every so manieth fault")
    parser.add_argument("--first", type=Path, default=KEPT, metavar="FILE", help="a table: its tests are run first")
    parser.add_argument("--keep", default="", metavar="FILE", help="write the table, as Markdown")
    args = parser.parse_args()
    commit = commit_of(ROOT)
    first = caught_before(args.first) if args.first.exists() else {}
    chosen = [fault for fault in FAULTS if args.only in fault.name][::args.every]
    with tempfile.TemporaryDirectory(prefix="vispark-faults-") as scratch:
        # The others are copies of this one, so that one may go on working on the sources.
        sound = copy(Path(scratch), "sound")
        known = [test for fault in chosen if (test := first.get(fault.name))]
        if caught := run(sound, None, tests=known if len(known) == len(chosen) else FAST).caught:
            print(f"the tests fail without a fault: {caught}")
            return 2
        with ThreadPoolExecutor(args.jobs) as pool:
            outcomes: list[FaultOutcome] = []
            for outcome in pool.map(lambda fault: run(copy(Path(scratch), fault.name, sound), fault,
                                                      first.get(fault.name, "")), chosen):
                print(f"{outcome.fault.name}: {outcome.caught or 'NOT CAUGHT'} ({outcome.seconds:.0f} s)", flush=True)
                outcomes.append(outcome)
    missed = [outcome.fault.name for outcome in outcomes if not outcome.caught]
    print(f"{len(outcomes) - len(missed)} of {len(outcomes)} faults were caught")
    if args.keep:
        Path(args.keep).write_text(table(outcomes, commit))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
