"""Samples and numbers of a VRDD's records, made by workers: the records that PySpark's samplers would draw."""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark import RDD
from pyspark.rddsampler import RDDRangeSampler

from gpu_worker.protocol.plans import NumberRowsStep, SampleRowsStep
from vispark.api.keys import keyed
from vispark.api.rdds.explain import BY_INDEX
from vispark.api.rdds.fallback import is_asked_for_by_user
from vispark.api.rdds.recorded_rdd import RecordedRDD
from vispark.data.records.layout import RecordLayout, RecordPart
from vispark.data.records.pairs import EMPTY, opened

#: Seeds that a request carries.
_LEAST_SEED, _MOST_SEED = -(1 << 63), (1 << 64) - 1


def sample(vrdd: RecordedRDD, withReplacement: bool, fraction: float, seed: int | None = None) -> RDD[Any]:
    """Return a sample of the records, those that PySpark draws with the same seed and partitions.

    Workers draw from the number of each partition's records and copy the rows that are chosen; a mini-batch of a
    loop is a sample with another seed in each pass.

    Parameters
    ----------
    withReplacement : bool
        Whether a record may be drawn several times.
    fraction : float
        The probability of each record, or with replacement the mean of how often it is drawn.
    seed : int, optional
        Of the draws; left out, a random one.

    Returns
    -------
    RDD
        A VRDD of cached records that are numbers, 1-D arrays, tuples or dicts of these, or pairs with numbers as
        keys; else Spark's RDD.

    Raises
    ------
    ValueError
        If the fraction is negative.
    OutOfMemory
        At the action, if neither the device nor host memory has room for the chosen records beside those before.

    Examples
    --------
    >>> numbers = sc.parallelize(range(100), 4)
    >>> batch = numbers.cache("GPU").sample(False, 0.1, seed=7)
    >>> batch.collect() == numbers.sample(False, 0.1, seed=7).collect()
    True
    """
    if not fraction >= 0:
        raise ValueError("Fraction must be nonnegative.")
    seed = random.randint(0, sys.maxsize) if seed is None else seed
    sampled = _sampled(vrdd, "sample", withReplacement, 0.0, fraction, seed) if is_asked_for_by_user() else None
    return RDD.sample(vrdd, withReplacement, fraction, seed) if sampled is None else sampled


def randomSplit(vrdd: RecordedRDD, weights: Sequence[float], seed: int | None = None) -> list[RDD[Any]]:
    """Split the records at random into parts whose shares are the weights, as PySpark does.

    Parameters
    ----------
    weights : sequence of float
        At least one above 0.
    seed : int, optional
        Of the draws; left out, a random one.

    Returns
    -------
    list of RDD
        Disjoint, and together all records; VRDDs under the conditions of :meth:`sample`.

    Examples
    --------
    >>> train, test = sc.parallelize(range(100), 4).cache("GPU").randomSplit([3, 1], seed=7)
    >>> train.count() + test.count()
    100
    """
    seed = random.randint(0, (1 << 32) - 1) if seed is None else seed
    total = float(sum(weights))
    if not is_asked_for_by_user() or min(weights, default=-1) < 0 or not total > 0:
        return RDD.randomSplit(vrdd, weights, seed)
    bounds = list(itertools.accumulate([weight / total for weight in weights], initial=0.0))
    parts = []
    for lower, upper in itertools.pairwise(bounds):
        sampled = _sampled(vrdd, "randomSplit", False, lower, upper, seed)
        if sampled is None:
            return RDD.randomSplit(vrdd, weights, seed)
        parts.append(sampled)
    return parts


def takeSample(vrdd: RecordedRDD, withReplacement: bool, num: int, seed: int | None = None) -> list[Any]:
    """Return ``num`` records drawn at random, or all in random order if there are fewer.

    They are those that PySpark draws with the same seed and partitions; of cached records, under the conditions of
    :meth:`sample`, no other record leaves the workers.

    Parameters
    ----------
    withReplacement : bool
        Whether a record may be drawn more than once.
    num : int
        The most records.
    seed : int, optional
        Of the draw; another one at each call where it is left out.

    Returns
    -------
    list
        Of records as :meth:`collect` gives them, ``num`` with replacement and at most ``num`` without.

    Raises
    ------
    ValueError
        If ``num`` is negative.

    Examples
    --------
    >>> numbers = sc.parallelize(range(100), 4)
    >>> numbers.cache("GPU").takeSample(False, 3, seed=7) == numbers.takeSample(False, 3, seed=7)
    True
    """
    if not vrdd._is_held() or _refused(vrdd, "takeSample", seed):
        records: list[Any] = vrdd._spark("takeSample", withReplacement, num, seed)
        return records
    drawn: Any = _Drawn(vrdd)
    records = RDD.takeSample(drawn, withReplacement, num, seed)
    vrdd._folds["takeSample"] = BY_INDEX
    return records


def zipWithIndex(vrdd: RecordedRDD) -> RDD[tuple[Any, int]]:
    """Return (record, number) with the records' numbers in their order, from 0 on.

    Returns
    -------
    RDD
        A VRDD of cached records that are numbers or arrays, or tuples that a ``vmap`` made: the driver knows how
        many each partition has. Else Spark's RDD.

    Examples
    --------
    >>> sc.parallelize([5.0, 6.0, 7.0], 2).cache("GPU").zipWithIndex().vmap(lambda r: r[0] * r[1]).collect()
    [0.0, 6.0, 14.0]
    """
    if not is_asked_for_by_user() or not vrdd._is_held():
        return RDD.zipWithIndex(vrdd)
    counts = [each.count for each in vrdd._results()]
    numbered = _numbered(vrdd, "zipWithIndex", tuple(itertools.accumulate(counts[:-1], initial=0)), 1)
    return RDD.zipWithIndex(vrdd) if numbered is None else numbered


def zipWithUniqueId(vrdd: RecordedRDD) -> RDD[tuple[Any, int]]:
    """Return (record, number): of n partitions the k-th has k, n + k, 2 n + k, and so on.

    Returns
    -------
    RDD
        As for :meth:`zipWithIndex`.

    Examples
    --------
    >>> sc.parallelize([5.0, 6.0, 7.0], 2).cache("GPU").zipWithUniqueId().collect()
    [(5.0, 0), (6.0, 1), (7.0, 3)]
    """
    partitions = vrdd.getNumPartitions()
    numbered = None
    if is_asked_for_by_user() and vrdd._is_held():
        numbered = _numbered(vrdd, "zipWithUniqueId", tuple(range(partitions)), partitions)
    return RDD.zipWithUniqueId(vrdd) if numbered is None else numbered


class _Drawn:
    """Stand-in of a VRDD for PySpark's ``takeSample``, whose samples workers draw."""

    _computeFractionForSampleSize = staticmethod(RDD._computeFractionForSampleSize)

    def __init__(self, source: RecordedRDD):
        self._source = source
        self.getNumPartitions, self.count, self.collect = source.getNumPartitions, source.count, source.collect

    def sample(self, with_replacement: bool, fraction: float, seed: int | None) -> RDD[Any]:
        """Return a sample of the records."""
        seed = random.randint(0, sys.maxsize) if seed is None else seed
        sampled = _sampled(self._source, "takeSample", with_replacement, 0.0, fraction, seed)
        return RDD.sample(self._source, with_replacement, fraction, seed) if sampled is None else sampled


def _refused(source: RecordedRDD, action: str, seed: Any) -> str:
    """Return the reason why workers do not draw from the records; "" if they do. It is noted for ``explain``."""
    contents = [each for each in source._results() if each.count]
    reason = next(filter(None, [_not_rows(opened(replace(each.layout, only="") if each.layout.wanted else each.layout))
                                for each in contents]), "")
    if seed is not None and (not isinstance(seed, int) or not _LEAST_SEED <= seed <= _MOST_SEED):
        reason = "the seed is no int of 64 bits"
    if reason:
        source._folds[action] = reason
    return reason


def _sampled(source: RecordedRDD, action: str, replaces: bool, lower: float, upper: float, seed: Any) -> Any:
    """Return the VRDD of a sample, or None where Spark is to draw."""
    reason = "" if isinstance(seed, int) and _LEAST_SEED <= seed <= _MOST_SEED else "the seed is no int of 64 bits"
    reason = reason or ("" if math.isfinite(upper) else "the fraction is infinite")
    source = keyed.item_alone(source)
    pairs = keyed.pairs_of(source, action, _not_rows, reason, keyed.IN_PYTHON)
    if pairs is None:
        return None
    step = SampleRowsStep(action, int(seed), float(lower), float(upper), bool(replaces), pairs.layout.encode(),
                          EMPTY.encode())
    partitions = source.getNumPartitions()

    def spark(rdd: RDD[Any]) -> RDD[Any]:
        if action != "randomSplit":
            return RDD.sample(rdd, replaces, upper, seed)
        return RDD.mapPartitionsWithIndex(rdd, RDDRangeSampler(lower, upper, seed).func, True)

    return keyed.exchanged(source, action, (*pairs.steps, step), pairs.layout, partitions, spark)


def _numbered(source: RecordedRDD, action: str, starts: tuple[int, ...], stride: int) -> Any:
    """Return the VRDD of records beside their numbers, or None where Spark is to number them."""
    source = keyed.item_alone(source)
    pairs = keyed.pairs_of(source, action, keyed.not_whole, how=keyed.IN_PYTHON)
    if pairs is None:
        return None
    before = pairs.layout
    names = tuple([f"0.{part.name}" if part.name else "0" for part in before.parts])
    parts = [replace(part, name=name) for name, part in zip(names, before.parts, strict=True)]
    layout = RecordLayout("elements", False, (*parts, RecordPart("1", "number", ("int",))), tupled=True)
    step = NumberRowsStep(action, starts, stride, names, "1", layout.encode())

    def spark(rdd: RDD[Any]) -> RDD[Any]:
        return RDD.zipWithIndex(rdd) if action == "zipWithIndex" else RDD.zipWithUniqueId(rdd)

    return keyed.exchanged(source, action, (*pairs.steps, step), layout, source.getNumPartitions(), spark)


def _not_rows(layout: RecordLayout) -> str:
    """Return the reason why records are no rows of arrays on a device; "" if they are."""
    if layout.keyed or layout.only:
        return "the keys are objects, which stay on the host"
    if layout.kind != "elements":
        return "the records are blocks, which are taken one by one"
    return ""
