"""Handlers of a plan's steps: each file of this package registers those of some kinds (see :func:`handles`).

A new kind of step is a message in :mod:`gpu_worker.protocol.plans` and a file here, which is found by being here.

Place 9 of 10 in ``gpu_worker.execution``; run by: device process.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from gpu_worker.execution.passes.step_handlers import StepHandler, handler_of
from gpu_worker.protocol.messages import Plan

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def handlers_of(plan: Plan) -> tuple[StepHandler[Any], ...]:
    """Return the handlers of a plan's steps, in order.

    Raises
    ------
    PlanError
        If this worker has none for one of them.

    Examples
    --------
    >>> from gpu_worker.protocol.plans import FetchStep, PutStep
    >>> [step.label for step in handlers_of(Plan((PutStep(), FetchStep(-1, "")), (), (), (), ()))]
    ['put', 'fetch']
    """
    steps = tuple([handler_of(step) for step in plan.steps])
    for number, step in enumerate([step for step in steps if step.keeps]):
        step.number = number
    return steps
