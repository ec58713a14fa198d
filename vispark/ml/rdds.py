"""Records of RDDs as what the fits take, and the model of ratings that were no DataFrame."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from pyspark import RDD, SparkContext
from pyspark.mllib.recommendation import Rating

from vispark.api.vrdd import VRDD
from vispark.errors import RecordError
from vispark.ml.base import Unsuited
from vispark.ml.loads import widen


def learner_of(kind: Any, **params: Any) -> Any:
    """Return an estimator with those parameters that are not None, once MLlib has checked them.

    Raises
    ------
    IllegalArgumentException
        If MLlib refuses a parameter.
    """
    learner = kind(**{name: value for name, value in params.items() if value is not None})
    learner._transfer_params_to_java()
    return learner


@contextmanager
def held(records: RDD[Any], *, has_vectors: bool = True) -> Iterator[VRDD]:
    """Give the records on the devices, and forget them at the end.

    Parameters
    ----------
    records : RDD
        Of arrays.
    has_vectors : bool
        Whether they have features ``x``, which are held as they are, and are float64 for the fit.

    Raises
    ------
    RecordError
        If a fit finds that it cannot be of them.
    """
    on_device: Any = records
    points = on_device.persist("GPU_AND_HOST")
    try:
        yield points.vmap(widen) if has_vectors else points
    except Unsuited as reason:
        raise RecordError(f"the records cannot be fitted: {reason}") from reason
    finally:
        points.unpersist()


def labelled(data: RDD[Any]) -> RDD[Any]:
    """Return records of features, label and weight of LabeledPoints, or of pairs of a label and a vector."""
    return data.map(_labelled)


def numbered(data: RDD[Any]) -> RDD[Any]:
    """Return records of vectors, weights of 1, and numbers of the rows."""
    return data.mapPartitionsWithIndex(_numbered)


def rated(data: RDD[Any]) -> RDD[Any]:
    """Return records of user, item and rating of Ratings, or of tuples of these."""
    return data.map(_rated)


def _vector(value: Any) -> np.ndarray:
    array = np.asarray(value.toArray() if hasattr(value, "toArray") else value)
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise TypeError(f"a vector of pyspark, an array, or a list of numbers is needed, and not {value!r:.80}")
    return array if array.dtype == np.float32 else array.astype(float)


def _labelled(record: Any) -> dict[str, Any]:
    if hasattr(record, "features"):
        record = record.label, record.features
    if len(record) != 2:
        raise TypeError(f"a LabeledPoint, or a pair of a label and a vector, is needed, and not {record!r:.80}")
    label, features = record
    return {"x": _vector(features), "y": float(label), "w": 1.0}


def _numbered(partition: int, records: Any) -> Iterator[dict[str, Any]]:
    for index, record in enumerate(records):
        yield {"x": _vector(record), "w": 1.0, "i": (partition << 33) + index}


def _rated(record: Any) -> dict[str, float]:
    if len(record) != 3:
        raise TypeError(f"a Rating, or a tuple of user, product and rating, is needed, and not {record!r:.80}")
    user, item, rating = record
    return {"u": float(user), "i": float(item), "r": float(np.float32(rating))}


class RatingFactors:
    """Factors of users and products, with the methods of ``pyspark.mllib``'s MatrixFactorizationModel.

    Parameters
    ----------
    context : SparkContext
        The context of the RDDs that it gives.
    users, products : array of int, shapes (u,) and (p,)
        The ids, in ascending order.
    factors : pair of arrays of float64, shapes (u, rank) and (p, rank)
        Of users and of products.
    """

    def __init__(self, context: SparkContext, users: np.ndarray, products: np.ndarray,
                 factors: tuple[np.ndarray, np.ndarray]):
        self._context = context
        self._users, self._products = users.astype(int), products.astype(int)
        self._of_users, self._of_products = factors
        self.rank = factors[0].shape[1]

    def predict(self, user: int, product: int) -> float:
        """Return the rating that a user is expected to give a product.

        Raises
        ------
        KeyError
            If one of them has no ratings.
        """
        return float(self._of_users[_place(self._users, user, "user")]
                     @ self._of_products[_place(self._products, product, "product")])

    def predictAll(self, user_product: RDD[Any]) -> RDD[Rating]:
        """Return the expected ratings of pairs of user and product; pairs without one are left out."""
        users = dict(zip(self._users.tolist(), self._of_users, strict=True))
        products = dict(zip(self._products.tolist(), self._of_products, strict=True))
        shared = self._context.broadcast((users, products))

        def ratings(pairs: Any) -> Iterator[Rating]:
            of_users, of_products = shared.value
            for user, product in pairs:
                if user in of_users and product in of_products:
                    yield Rating(user, product, float(of_users[user] @ of_products[product]))
        return user_product.mapPartitions(ratings)

    def recommendProducts(self, user: int, num: int) -> list[Rating]:
        """Return the products with the highest expected ratings of a user."""
        scores = self._of_products @ self._of_users[_place(self._users, user, "user")]
        return [Rating(user, int(self._products[i]), float(scores[i])) for i in np.argsort(-scores)[:num]]

    def recommendUsers(self, product: int, num: int) -> list[Rating]:
        """Return the users with the highest expected ratings of a product."""
        scores = self._of_users @ self._of_products[_place(self._products, product, "product")]
        return [Rating(int(self._users[i]), product, float(scores[i])) for i in np.argsort(-scores)[:num]]

    def userFeatures(self) -> RDD[Any]:
        """Return pairs of user and factors."""
        return self._context.parallelize([*zip(self._users.tolist(), self._of_users, strict=True)])

    def productFeatures(self) -> RDD[Any]:
        """Return pairs of product and factors."""
        return self._context.parallelize([*zip(self._products.tolist(), self._of_products, strict=True)])


def _place(ids: np.ndarray, wanted: int, kind: str) -> int:
    place = int(np.searchsorted(ids, wanted))
    if place == len(ids) or ids[place] != wanted:
        raise KeyError(f"{kind} {wanted} has no ratings")
    return place
