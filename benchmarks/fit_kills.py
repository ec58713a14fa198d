"""Kills under fits of vispark.ml's estimators: ``python -m benchmarks.fit_kills --out FILE [--hits N] [NAME...]``.

The device process, the daemon, both, or the Python workers get SIGKILL at a random moment of a fit that loads its data
first. A kill counts as a hit where the fit missed what was killed: a plan of the driver was repeated, a task of Spark's
failed, or a process was started anew before the fit's end. Each estimator and victim has kills until N were hits, three
times as many at most; each model is compared, bit for bit, with that of a fit without a kill. A daemon is on the way of
few requests, so that most fits go on without it.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import click

import tests.conftest  # It sets the environment before Spark is started.
from tests.chaos.arena import opened
from tests.chaos.fits import ESTIMATORS, OPTIONS, VICTIMS, FitKill, bits, numbers, rows, struck
from tests.system import topology
from vispark.ml import loads

__all__ = ["main", "tests"]


def table(blows: list[FitKill]) -> str:
    """Return kills, hits and wrong models by victim, and the estimators without a hit."""
    lines = [f"{'killed':16}{'kills':>7}{'hits':>6}{'plan':>6}{'task':>6}{'started':>9}{'wrong':>7}"]
    for victim in VICTIMS:
        kills = [each for each in blows if each.victim == victim]
        ways = Counter(way for each in kills for way in each.missed)
        lines.append(f"{victim:16}{len(kills):7}{sum(bool(each.missed) for each in kills):6}"
                     + "".join(f"{ways[way]:{width}}" for way, width in (("plan", 6), ("task", 6), ("started", 9)))
                     + f"{sum(not each.is_same for each in kills):7}")
    hit = {(each.estimator, each.victim) for each in blows if each.missed}
    names = dict.fromkeys(each.estimator for each in blows)
    rest = [f"{name} ({victim})" for name in names for victim in VICTIMS if (name, victim) not in hit]
    return "\n".join([*lines, f"without a hit: {', '.join(rest) or 'none'}"])


@click.command(help=__doc__)
@click.argument("names", nargs=-1)
@click.option("--hits", default=2)
@click.option("--seed", default=1)
@click.option("--rows", "count", default=600)
@click.option("--seconds", default=1e9, help="no further kill after so many")
@click.option("--out", type=click.Path(path_type=Path), required=True)
def main(names: tuple[str, ...], hits: int, seed: int, count: int, seconds: float, out: Path) -> None:
    moments, blows, begin = random.Random(seed), list[FitKill](), time.monotonic()
    with topology.local() as place, opened(place, OPTIONS) as arena:
        df = rows(arena, count).cache()
        for name in names or ESTIMATORS:
            fit = ESTIMATORS[name]().fit
            expected = bits(numbers(fit(df)))
            loads.unload()
            started = time.monotonic()
            fit(df)
            longest = time.monotonic() - started
            for victim in VICTIMS:
                kills: list[FitKill] = []
                while len(kills) < 3 * hits and sum(bool(each.missed) for each in kills) < hits \
                        and time.monotonic() - begin < seconds:
                    kills.append(struck(arena, df, FitKill(name, victim, moments.random() * longest), expected))
                blows += kills
            print(name, f"{longest:.2f} s", Counter((each.victim, bool(each.missed)) for each in blows
                                                    if each.estimator == name), flush=True)
            out.write_text("".join(json.dumps(asdict(each)) + "\n" for each in blows))
        df.unpersist()
        loads.unload()
    print(table(blows))


if __name__ == "__main__":
    main()
