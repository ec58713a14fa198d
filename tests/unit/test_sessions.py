"""Rights and ends of sessions, without sockets or processes."""

import dataclasses

import pytest

from gpu_worker.daemon.session_state import End, SessionStateMachine, Start, Watch
from gpu_worker.protocol.control import Registration
from gpu_worker.protocol.errors import OptionError, ProtocolError, Unauthorized
from gpu_worker.protocol.messages import VERSION, Death, Hello, SessionOptions

OPTIONS = SessionOptions("null", 0, 10.0, "", "info")
EXECUTOR = Hello(VERSION, "executor", "app", b"s" * 32, "an application", 100, OPTIONS)
DRIVER = dataclasses.replace(EXECUTOR, role="driver", client_pid=0)
LEASE = dataclasses.replace(EXECUTOR, role="lease", client_pid=0)
KILLED = Death(False, 9, None)


class SessionClock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return SessionClock()


@pytest.fixture
def sessions(clock):
    sessions = SessionStateMachine(clock)
    yield sessions
    sessions.validate()


def test_assigned_gpus_are_those_of_executors_that_live(sessions):
    for client_pid, gpus in ((100, ("0", "1")), (101, ("2",)), (100, ("1", "4"))):
        sessions.greet(hello(client_pid=client_pid, gpus=gpus))
    assert sessions.get("app").assigned == ("0", "1", "2", "4")
    sessions.greet(DRIVER)
    sessions.client_process_ended("app", 100)
    sessions.client_process_ended("app", 77)
    assert sessions.get("app").assigned == ("2",)


@pytest.mark.parametrize("gpus", [("",), ("x" * 129,), tuple(map(str, range(1025)))])
def test_addresses_are_of_bounded_size_and_number(sessions, gpus):
    with pytest.raises(ProtocolError, match="at most 1024 GPUs, of addresses of 1 to 128 characters"):
        sessions.greet(hello(gpus=gpus))


def hello(base=EXECUTOR, **changes):
    return dataclasses.replace(base, **changes)


def test_first_client_starts_a_process_and_the_client_is_watched(sessions):
    assert sessions.greet(EXECUTOR) == [Watch("app", 100), Start("app", 1)]


def test_second_client_starts_nothing(sessions):
    sessions.greet(EXECUTOR)
    assert sessions.greet(EXECUTOR) == []
    assert sessions.greet(hello(client_pid=101)) == [Watch("app", 101)]


def test_a_lease_alone_starts_no_process(sessions):
    assert sessions.greet(LEASE) == []


def test_admin_makes_no_session(sessions):
    assert sessions.greet(hello(role="admin", session="", secret=b"")) == []
    assert list(sessions) == []


def test_next_process_has_the_next_epoch(sessions):
    sessions.greet(EXECUTOR)
    sessions.process_ended("app", 1, KILLED)
    assert sessions.greet(EXECUTOR) == [Start("app", 2)]


def test_late_news_of_an_old_process_does_not_end_the_new_one(sessions):
    sessions.greet(EXECUTOR)
    sessions.process_ended("app", 1, KILLED)
    sessions.greet(EXECUTOR)
    sessions.process_ended("app", 1, KILLED)
    assert sessions.greet(EXECUTOR) == []


def test_epochs_are_not_used_again_by_a_session_of_the_same_name(sessions):
    sessions.greet(EXECUTOR)
    sessions.stop()
    assert Start("app", 2) in sessions.greet(EXECUTOR)


def test_epochs_start_above_those_of_earlier_daemons(clock):
    assert Start("app", 501) in SessionStateMachine(clock, last_epoch=500).greet(EXECUTOR)


def test_exit_statuses_are_kept_by_epoch(sessions):
    sessions.greet(EXECUTOR)
    assert sessions.exit_status("app", 1).alive
    sessions.process_ended("app", 1, KILLED)
    assert sessions.exit_status("app", 1) == KILLED
    sessions.greet(EXECUTOR)
    assert sessions.exit_status("app", 2).alive
    assert sessions.exit_status("app", 1) == KILLED
    assert sessions.exit_status("app", 7) == Death(False, 0, None)
    assert sessions.exit_status("unknown", 1) == Death(False, 0, None)


def test_exit_statuses_do_not_pile_up(sessions):
    for epoch in range(1, 101):
        sessions.greet(EXECUTOR)
        sessions.process_ended("app", epoch, KILLED)
    sessions.validate()
    assert sessions.exit_status("app", 100) == KILLED
    assert sessions.exit_status("app", 1).signal == 0


# -- leases -----------------------------------------------------------------------------------------------------------

def test_lives_while_the_driver_leases(sessions, clock):
    sessions.greet(LEASE)
    clock.now += 1e6
    assert sessions.expire() == [] and sessions.next_expiry() is None


def test_ends_a_lease_after_the_last_lease_closed(sessions, clock):
    sessions.greet(LEASE)
    sessions.greet(LEASE)
    sessions.lease_closed("app")
    assert sessions.next_expiry() is None
    sessions.lease_closed("app")
    assert sessions.next_expiry() == clock.now + 10
    clock.now += 9.9
    assert sessions.expire() == []
    clock.now += 0.1
    assert sessions.expire() == [End("app")]
    assert sessions.expire() == [] and sessions.next_expiry() is None


def test_a_lease_taken_anew_keeps_the_session(sessions, clock):
    sessions.greet(LEASE)
    sessions.lease_closed("app")
    clock.now += 9
    sessions.greet(LEASE)
    clock.now += 100
    assert sessions.expire() == []


def test_executors_do_not_keep_what_the_driver_has_left(sessions, clock):
    sessions.greet(LEASE)
    sessions.greet(EXECUTOR)
    sessions.lease_closed("app")
    clock.now += 5
    sessions.greet(EXECUTOR)
    clock.now += 5
    assert sessions.expire() == [End("app")]


def test_without_a_driver_lives_while_a_client_process_does(sessions, clock):
    sessions.greet(hello(client_pid=100))
    sessions.greet(hello(client_pid=101))
    sessions.client_process_ended("app", 100)
    clock.now += 1e6
    assert sessions.expire() == []
    sessions.client_process_ended("app", 101)
    assert sessions.expire() == []
    clock.now += 10
    assert sessions.expire() == [End("app")]


def test_without_driver_and_client_process_each_greeting_renews(sessions, clock):
    for _ in range(5):
        sessions.greet(DRIVER)
        clock.now += 9
        assert sessions.expire() == []
    clock.now += 1
    assert sessions.expire() == [End("app")]


def test_only_what_has_run_out_ends(sessions, clock):
    sessions.greet(hello(DRIVER, session="short", options=dataclasses.replace(OPTIONS, lease=1.0)))
    sessions.greet(hello(DRIVER, session="long"))
    clock.now += 2
    assert sessions.expire() == [End("short")]
    assert [session.name for session in sessions] == ["long"]


def test_events_of_sessions_that_are_gone_do_nothing(sessions):
    sessions.lease_closed("gone")
    sessions.client_process_ended("gone", 1)
    sessions.process_ended("gone", 1, KILLED)
    assert list(sessions) == []


def test_idle_time_counts_from_the_end_of_the_last_session(sessions, clock):
    assert sessions.empty_since() == 1000
    sessions.greet(LEASE)
    assert sessions.empty_since() is None
    clock.now += 5
    sessions.stop()
    assert sessions.empty_since() == 1005


def test_stop_ends_all(sessions):
    sessions.greet(EXECUTOR)
    sessions.greet(hello(session="other"))
    assert sorted(end.session for end in sessions.stop()) == ["app", "other"]


def test_lease_is_told_in_words(sessions, clock):
    sessions.greet(EXECUTOR)
    session = sessions.get("app")
    assert sessions.lease_text(session) == "executors"
    sessions.greet(LEASE)
    assert sessions.lease_text(session) == "driver"
    sessions.lease_closed("app")
    clock.now += 4
    assert sessions.lease_text(session) == "ends in 6 s"


# -- adoption ---------------------------------------------------------------------------------------------------------

def test_an_adopted_process_goes_on(sessions, clock):
    registration = Registration("app", b"s" * 32, "an application", OPTIONS, 41, 1234, (100, 101))
    assert sessions.adopt(registration) == [Watch("app", 100), Watch("app", 101)]
    assert sessions.greet(EXECUTOR) == []
    assert sessions.exit_status("app", 41).alive
    sessions.process_ended("app", 41, KILLED)
    assert sessions.greet(EXECUTOR) == [Start("app", 42)]


def test_an_adopted_session_keeps_its_secret(sessions):
    sessions.adopt(Registration("app", b"s" * 32, "", OPTIONS, 1, 1234, ()))
    with pytest.raises(Unauthorized):
        sessions.greet(hello(secret=b"t" * 32))


def test_an_adopted_session_that_nobody_renews_ends(sessions, clock):
    sessions.adopt(Registration("app", b"s" * 32, "", OPTIONS, 1, 1234, ()))
    clock.now += 10
    assert sessions.expire() == [End("app")]


# -- refusals ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("role", ["driver", "executor", "lease"])
def test_wrong_secret_is_refused_and_changes_nothing(sessions, role):
    sessions.greet(EXECUTOR)
    before = dataclasses.replace(sessions.get("app"))
    with pytest.raises(Unauthorized, match="session app"):
        sessions.greet(hello(role=role, secret=b"t" * 32, client_pid=999))
    assert sessions.get("app") == before


@pytest.mark.parametrize(("changes", "error", "says"), [
    ({"version": VERSION + 1}, ProtocolError, f"version {VERSION + 1} .* {VERSION}"),
    ({"role": "root"}, ProtocolError, "driver, executor, lease, finish, admin, not 'root'"),
    ({"session": ""}, ProtocolError, "named by"),
    ({"session": "../etc"}, ProtocolError, "named by"),
    ({"session": ".hidden"}, ProtocolError, "named by"),
    ({"session": "s" * 65}, ProtocolError, "named by"),
    ({"secret": b"short"}, ProtocolError, "16 to 64 bytes, not 5"),
    ({"secret": b"s" * 65}, ProtocolError, "16 to 64 bytes, not 65"),
    ({"client_pid": -1}, ProtocolError, "client's process"),
    ({"client_pid": 1 << 40}, ProtocolError, "client's process"),
    ({"options": dataclasses.replace(OPTIONS, lease=0.0)}, ProtocolError, "lease"),
    ({"options": dataclasses.replace(OPTIONS, lease=float("nan"))}, ProtocolError, "lease"),
    ({"options": dataclasses.replace(OPTIONS, lease=float("inf"))}, ProtocolError, "lease"),
    ({"options": dataclasses.replace(OPTIONS, memory=-1)}, ProtocolError, "memory"),
    ({"options": dataclasses.replace(OPTIONS, log_level="loud")}, OptionError, "debug, info, warning, error"),
])
def test_greetings_that_are_refused(sessions, changes, error, says):
    with pytest.raises(error, match=says):
        sessions.greet(hello(**changes))
    assert list(sessions) == []
