"""Handlers of a plan's steps: one for each kind, and nothing runs without one."""

from __future__ import annotations

import typing

import pytest

from gpu_worker.execution.passes import step_handlers
from gpu_worker.execution.passes.step_handlers import StepHandler, handler_of, handles
from gpu_worker.execution.plans.plan_cache import DecodedPlan
from gpu_worker.execution.steps import handlers_of
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.messages import FetchStep, KeepStep, LoadStep, Plan, PutStep, Step, ToDeviceStep, ToHostStep


@pytest.mark.parametrize("kind", typing.get_args(Step), ids=lambda kind: kind.__name__)
def test_each_kind_of_step_has_one_handler(kind: type):
    handler = step_handlers._HANDLERS[kind]
    assert issubclass(handler, StepHandler)
    assert handler.start is not StepHandler.start or handler.run is not StepHandler.run
    with pytest.raises(AssertionError, match=f"two handlers of {kind.__name__}"):
        handles(kind)(handler)


def test_a_step_without_handler_names_those_that_there_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(step_handlers._HANDLERS, FetchStep)
    with pytest.raises(PlanError, match=r"this worker runs no step Fetch; it runs \w+, .*Exec, Fold, FoldByKey, "):
        handler_of(FetchStep(-1, ""))


def test_what_starts_a_plan_does_nothing_else_and_others_start_none():
    with pytest.raises(PlanError, match="Put can only start a plan"):
        handler_of(PutStep()).run(None, [])
    with pytest.raises(PlanError, match="a plan starts with Put or Load, not with ToDevice"):
        handler_of(ToDeviceStep()).start(None, None)


def test_what_is_kept_is_numbered():
    keeps = KeepStep(0, "a", "device"), KeepStep(1, "b", "device")
    assert [step.number for step in handlers_of(Plan((PutStep(), keeps[0], ToDeviceStep(), keeps[1]), (), (), (), ()))
            if step.keeps] == [0, 1]


@pytest.mark.parametrize(("rest", "is_recorded"), [
    ((FetchStep(-1, ""),), True),
    ((KeepStep(1, "", "device"),), True),
    ((KeepStep(1, "", "device"), FetchStep(-1, "")), False),
    ((ToHostStep(), FetchStep(-1, "")), False),
    ((ToHostStep(), KeepStep(1, "", "host")), False),
])
def test_a_plan_is_recorded_where_it_leaves_nothing_in_host_memory(rest: tuple[Step, ...], is_recorded: bool):
    assert DecodedPlan(Plan((LoadStep(0), ToDeviceStep(), *rest), (), (), (), ())).may_be_recorded == is_recorded
