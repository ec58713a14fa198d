"""The way of a fit: checks, the estimator's own training in the workers, and MLlib where that is not meant for it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from pyspark.ml import base as _theirs
from pyspark.ml.util import JavaMLReader
from pyspark.ml.wrapper import JavaModel
from pyspark.sql import Column, DataFrame

from vispark.api.rdds import fallback
from vispark.api.vrdd import VRDD
from vispark.errors import OutOfMemory, RecordError
from vispark.ml.java import JavaObjects
from vispark.ml.loads import Fields, load, number, one, plain
from vispark.ml.names import of_pyspark
from vispark.ml.summaries import FittedModel, LazySummary, with_summary

#: pyspark's reader, whose annotations differ between versions.
_JavaReader: Any = JavaMLReader


class Unsuited(Exception):
    """Reason for which MLlib is to do a fit."""


class StageOfMLlib:
    """Estimator or model of MLlib's whose files are read as the subclass; it comes before pyspark's class."""

    @classmethod
    def read(cls) -> Any:
        """Return a reader of saved estimators or models, MLlib's own among them."""
        return StageReader(cls)

    @classmethod
    def _from_java(cls, java_stage: Any) -> Any:
        stage: Any = cls()
        stage._java_obj = java_stage
        if isinstance(stage, JavaModel):
            stage._create_params_from_java()
        stage._resetUid(java_stage.uid())
        stage._transfer_params_from_java()
        return stage


class DeviceFit(StageOfMLlib):
    """Estimator of ``pyspark.ml`` that fits in the workers; it comes before pyspark's class among the bases.

    All but the fit is inherited: parameters, defaults, their checks, persistence. What a fit gives is MLlib's own Java
    model, and so pyspark's model around it.
    """

    _java_obj: Any
    _transfer_params_to_java: Any
    isSet: Any
    getOrDefault: Any
    uid: str

    #: Whether records that are none of the data may come too, with weights of 0.
    _can_mask = True

    @abstractmethod
    def _fields(self) -> Fields:
        """Return the fields of the records that a fit is of."""

    def _records(self, dataset: DataFrame) -> VRDD:
        """Return the records of a dataset on the devices."""
        return load(dataset, self._fields(), can_mask=self._can_mask, can_round=True)

    @abstractmethod
    def _train(self, dataset: DataFrame) -> Any:
        """Return MLlib's Java model, fitted to a dataset in the workers; with the maker of its summary, if it has one.

        The maker is given a copy of the model, and holds no DataFrame.

        Raises
        ------
        Unsuited
            If MLlib is to do it, for what the parameters or the data say.
        """

    def _fit_java(self, dataset: DataFrame) -> Any:
        self._transfer_params_to_java()
        self._java_obj.transformSchema(dataset._jdf.schema())
        try:
            model = self._train(dataset)
        except (Unsuited, RecordError, OutOfMemory) as reason:
            why = str(reason)
        else:
            return self._fitted_model(dataset, model)
        # Not within the handler: an error of MLlib's would be told with the reason's trace before it.
        fallback.report_fallback(dataset.sparkSession.sparkContext, "fit", type(self).__name__, why,
                                 "is done by MLlib, in Spark jobs")
        theirs: Any = super()
        return theirs._fit_java(dataset)

    def _fitted_model(self, dataset: DataFrame, trained: Any) -> Any:
        """Return the Java model of a training, with its parameters, and its summary, if it is to have one."""
        model, make = trained if isinstance(trained, tuple) else (trained, None)
        model = self._with_params(dataset, model).setParent(self._java_obj)
        if make is None:
            return model
        java = JavaObjects(dataset.sparkSession.sparkContext)
        base = model.copy(java.empty_params())
        return FittedModel(model, LazySummary(lambda: java.some(make(java, base))))

    def _create_model(self, fitted: Any) -> Any:
        theirs: Any = super()
        if isinstance(fitted, FittedModel):
            return with_summary(theirs._create_model(fitted.model), fitted.summary)
        return theirs._create_model(fitted)

    def _with_params(self, dataset: DataFrame, model: Any) -> Any:
        """Return a Java model that has taken over the estimator's parameters."""
        jvm: Any = dataset.sparkSession.sparkContext._jvm
        return self._java_obj.copyValues(model, jvm.org.apache.spark.ml.param.ParamMap.empty())

    def _column(self, name: str) -> str | None:
        """Return the value of a parameter that names a column, or None where it is not set."""
        return self.getOrDefault(name) or None if self.isSet(name) else None

    def _weight(self) -> tuple[str, Column]:
        """Return the field of the weights, which are 1 where no column has them."""
        name = self._column("weightCol")
        return number(name) if name else one()


class LabelledFit(DeviceFit):
    """Estimator whose records have features ``x``, a label ``y`` and a weight ``w``."""

    getFeaturesCol: Any
    getLabelCol: Any

    def _fields(self) -> Fields:
        return {"x": plain(self.getFeaturesCol()), "y": number(self.getLabelCol()), "w": self._weight()}


class ColumnFit(DeviceFit):
    """Estimator whose records have the vectors ``x`` of one column, and weights ``w`` of 1."""

    getInputCol: Any

    def _fields(self) -> Fields:
        return {"x": plain(self.getInputCol()), "w": one()}


class StageReader(_JavaReader):
    """Reader of what MLlib saved under the name of pyspark's class."""

    @classmethod
    def _java_loader_class(cls, clazz: Any) -> str:
        theirs = next(base for base in clazz.__mro__ if base.__name__ == clazz.__name__
                      and base.__module__.startswith("pyspark.ml."))
        return str(super()._java_loader_class(theirs))


def __getattr__(name: str) -> Any:
    return of_pyspark(_theirs, name)
