"""Estimators of ``pyspark.ml.recommendation`` that fit in the workers."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.ml import recommendation
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from vispark.api.vrdd import VRDD
from vispark.ml import rdds
from vispark.ml.base import DeviceFit, Unsuited
from vispark.ml.java import JavaObjects
from vispark.ml.loads import Fields, number, one
from vispark.ml.moments import totals
from vispark.ml.names import of_pyspark
from vispark.ml.optim.normal_equations import solve, solve_nonnegative
from vispark.ml.xorshift import XorShift, spread

#: The most bytes that the normal equations of all users, or of all items, may have.
_LARGEST = 2**31


class ALS(DeviceFit, recommendation.ALS):
    """Factors of ratings by alternating least squares: pyspark's, fitted in the workers.

    Each half of an iteration is one pass, which sums the normal equations of each user or item; the driver solves
    them. It begins with MLlib's random factors. Ids that are no whole numbers stay with MLlib, and normal equations of
    more than 2 GiB.

    Examples
    --------
    >>> from pyspark.sql import SparkSession
    >>> rows = [(0, 0, 4.0), (0, 1, 2.0), (1, 1, 3.0), (1, 2, 4.0), (2, 1, 1.0), (2, 2, 5.0)]
    >>> df = SparkSession(sc).createDataFrame(rows, ["user", "item", "rating"])
    >>> model = ALS(rank=2, maxIter=3, seed=0).fit(df)
    >>> model.rank, model.userFactors.count()
    (2, 3)
    """

    _can_mask = False

    def _fields(self) -> Fields:
        rating = self.getRatingCol()
        value = (f"float({rating})", sql.col(f"`{rating}`").cast("float").cast("double")) if rating else one()
        return {"u": number(self.getUserCol()), "i": number(self.getItemCol()), "r": value}

    def _train(self, dataset: DataFrame) -> Any:
        ratings = self._records(dataset)
        users, items, factors = self._fitted(ratings, JavaObjects(dataset.sparkSession.sparkContext))
        tables = [_table(dataset, *each) for each in zip(
            (users, items), factors, (self.getNumUserBlocks(), self.getNumItemBlocks()), strict=True)]
        java = JavaObjects(dataset.sparkSession.sparkContext)
        return java.ml.recommendation.ALSModel(self.uid, self.getRank(), *[table._jdf for table in tables])

    @classmethod
    def train(cls, ratings: Any, rank: int, iterations: int = 5, lambda_: float = 0.01, *, nonnegative: bool = False,
              seed: int | None = None) -> rdds.RatingFactors:
        """Return the factors of an RDD of ratings, as ``pyspark.mllib``'s ALS.train does.

        Parameters
        ----------
        ratings : RDD
            Ratings, or tuples of user, product and rating; ids are of 32 bits.
        rank, iterations, lambda_, nonnegative, seed
            As there: the number of factors; of iterations; the strength of the regularisation; whether factors are not
            to be negative; the seed of the first factors.

        Raises
        ------
        RecordError
            If ids are no whole numbers of 32 bits, or ratings are not finite.

        Examples
        --------
        >>> ratings = sc.parallelize([(0, 0, 4.0), (0, 1, 2.0), (1, 1, 3.0), (1, 0, 6.0)], 2)
        >>> round(ALS.train(ratings, 1, 10, seed=1).predict(1, 0))
        6
        """
        learner: ALS = rdds.learner_of(cls, rank=rank, maxIter=iterations, regParam=lambda_, nonnegative=nonnegative,
                                       seed=seed)
        return learner._of(ratings)

    @classmethod
    def trainImplicit(cls, ratings: Any, rank: int, iterations: int = 5, lambda_: float = 0.01, *, alpha: float = 0.01,
                      nonnegative: bool = False, seed: int | None = None) -> rdds.RatingFactors:
        """Return the factors of an RDD of how often users chose products, as ``pyspark.mllib``'s does.

        Parameters
        ----------
        ratings, rank, iterations, lambda_, nonnegative, seed
            As for :meth:`train`.
        alpha : float
            By how much a rating raises the confidence.

        Examples
        --------
        >>> ratings = sc.parallelize([(0, 0, 4.0), (0, 1, 2.0), (1, 1, 3.0)], 2)
        >>> model = ALS.trainImplicit(ratings, 2, alpha=40.0, seed=1)
        >>> model.predict(0, 0) > model.predict(1, 0)
        True
        """
        learner: ALS = rdds.learner_of(cls, rank=rank, maxIter=iterations, regParam=lambda_, nonnegative=nonnegative,
                                       seed=seed, implicitPrefs=True, alpha=alpha)
        return learner._of(ratings)

    def _of(self, ratings: Any) -> rdds.RatingFactors:
        with rdds.held(rdds.rated(ratings), has_vectors=False) as records:
            users, items, factors = self._fitted(records, JavaObjects(ratings.context))
        return rdds.RatingFactors(ratings.context, users, items, (factors[0], factors[1]))

    def _fitted(self, ratings: VRDD, java: JavaObjects) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """Return the ids of users and items, in ascending order, and the factors of both."""
        odd, total = totals(ratings, _sums)
        if odd:
            raise Unsuited("ids are to be whole numbers of 32 bits")
        if not np.isfinite(total):
            raise Unsuited("the ratings have NaN or infinite numbers")
        if not self.getMaxIter():
            raise Unsuited("maxIter is 0")
        users, items = (np.sort(np.array(ratings.vmap(ids).distinct().collect(), float)) for ids in (_user, _item))
        rank = self.getRank()
        if max(len(users), len(items)) * (rank * rank + rank + 1) * 8 > _LARGEST:
            raise Unsuited(f"the normal equations of {len(users)} users and {len(items)} items have more than 2 GiB")
        rated = ratings.vmap(_numbered, users, items).persist("GPU_AND_HOST")
        factors = [self._start(java, users), np.zeros((len(items), rank))]
        for _ in range(self.getMaxIter()):
            factors[1] = self._half(rated, _item_equations, factors[0], len(items))
            factors[0] = self._half(rated, _user_equations, factors[1], len(users))
        return users, items, factors

    def _start(self, java: JavaObjects, users: np.ndarray) -> np.ndarray:
        """Return the users' factors that MLlib begins with: by blocks of users, in the order of their ids."""
        hashed = java.hashed_seed
        seed = XorShift(hashed(self.getSeed())).long()
        factors = np.empty((len(users), self.getRank()))
        blocks = self.getNumUserBlocks()
        for block in range(blocks):
            draws = XorShift(hashed(spread(seed ^ block)))
            for index in np.flatnonzero(users % blocks == block):
                row = np.array([draws.normal() for _ in range(self.getRank())], np.float32)
                factors[index] = row * np.float32(1 / np.sqrt((row * row).sum(dtype=float)))
        return factors.astype(np.float32).astype(float)

    def _half(self, rated: VRDD, equations: Any, others: np.ndarray, size: int) -> np.ndarray:
        """Return the factors of users or items that suit those of the others best."""
        alpha = self.getAlpha() if self.getImplicitPrefs() else -1.0
        equations_of = rated.vmap(equations, others, alpha).reduceByKey(_add, numKeys=size).collect()
        rank = others.shape[1]
        matrices, sides, counts = np.zeros((size, rank, rank)), np.zeros((size, rank)), np.zeros(size)
        for index, (matrix, side, count) in equations_of:
            matrices[index], sides[index], counts[index] = np.reshape(matrix, (rank, rank)), side, count
        if self.getImplicitPrefs():
            matrices += others.T @ others
        matrices += (self.getRegParam() * counts)[:, None, None] * np.eye(rank)
        try:
            table = solve_nonnegative(matrices, sides) if self.getNonnegative() else solve(matrices, sides)
        except np.linalg.LinAlgError as error:
            raise Unsuited("the normal equations of a user or an item are singular") from error
        return table.astype(np.float32).astype(float)


def _table(dataset: DataFrame, ids: np.ndarray, factors: np.ndarray, blocks: int) -> DataFrame:
    """Return a DataFrame of factors, in MLlib's order: by blocks of ids, and by id in each."""
    order = np.lexsort((ids, ids % blocks))
    rows = [(int(one), row.tolist()) for one, row in zip(ids[order], factors[order], strict=True)]
    return dataset.sparkSession.createDataFrame(rows, "id int, features array<float>")


def _add(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def _sums(u: Any, i: Any, r: Any) -> Any:
    far = abs(u) >= 2147483648.0 or abs(i) >= 2147483648.0
    return 1 if far or u != np.floor(u) or i != np.floor(i) else 0, r


def _user(u: Any, i: Any, r: Any) -> Any:
    return int(u)


def _item(u: Any, i: Any, r: Any) -> Any:
    return int(i)


def _numbered(u: Any, i: Any, r: Any, users: Any, items: Any) -> Any:
    return {"u": np.searchsorted(users, u), "i": np.searchsorted(items, i)}


def _user_equations(u: Any, i: Any, r: Any, others: Any, alpha: Any) -> Any:
    y = others[i]
    if alpha < 0:
        return u, (np.outer(y, y), r * y, 1.0)
    c = alpha * abs(r)
    return u, (c * np.outer(y, y), (1 + c if r > 0 else 0.0) * y, 1.0 if r > 0 else 0.0)


def _item_equations(u: Any, i: Any, r: Any, others: Any, alpha: Any) -> Any:
    y = others[u]
    if alpha < 0:
        return i, (np.outer(y, y), r * y, 1.0)
    c = alpha * abs(r)
    return i, (c * np.outer(y, y), (1 + c if r > 0 else 0.0) * y, 1.0 if r > 0 else 0.0)


def __getattr__(name: str) -> Any:
    return of_pyspark(recommendation, name)
