"""python -m tests.property.differential --cases 100000 --jobs 16 --device host|cuda [--keep FILE]

Prints what differs, with how to run it again, and exits with 1 if anything does.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time

from tests.property.differential.campaign import Tally, again, campaign
from tests.property.differential.report import summary, written
from tests.property.differential.verdicts import WRONG, judge_all


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.differential", description=__doc__)
    parser.add_argument("--cases", type=int, default=480, help="functions to draw")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--device", choices=("host", "cuda"), default="host")
    parser.add_argument("--seed", default="0", help="another seed draws other functions")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no unit later than this")
    parser.add_argument("--state", default="", metavar="FILE", help="go on from here, and keep how far it is")
    parser.add_argument("--templates", action="store_true", help="only judge each template with each two dtypes")
    parser.add_argument("--again", default="", metavar="CASE", help="run one function again, by its name")
    parser.add_argument("--keep", default="", metavar="FILE", help="keep the result as JSON, and as Markdown")
    parser.add_argument("--show", type=int, default=20, help="differences to print in full")
    args = parser.parse_args()
    start = time.monotonic()
    if args.again:
        tally, verdicts = again(args.again, args.device), {}
    elif args.templates:
        tally, verdicts = Tally(), judge_all(args.jobs, mixed=True)
    else:
        tally, verdicts = campaign(args.seed, args.cases, args.jobs, args.device, args.seconds, args.state)
    for words in tally.differences[:args.show]:
        print(f"----\n{words}")
    print(summary(tally, verdicts, time.monotonic() - start))
    if args.keep:
        command = shlex.join(["python", "-m", "tests.property.differential", *sys.argv[1:]])
        written(args, command, tally, verdicts, time.monotonic() - start)
    wrong = any(one.kind == WRONG for one in verdicts.values())
    return 1 if tally.differences or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
