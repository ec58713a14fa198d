"""Publications of a daemon, who may attach them, and when they end."""

import os

import pytest

from gpu_worker.daemon.publication_store import PublicationStore
from gpu_worker.protocol.errors import ProtocolError, PublicationExists, PublicationLost, Unauthorized
from gpu_worker.protocol.publications import (
    MAX_NAME,
    DetachPublications,
    GetPublication,
    PublicationDetails,
    PutPublication,
    SharedSegment,
)
from gpu_worker.server.publications import ProcessPublications

LEASE = 10.0


def open_descriptors():
    return len(os.listdir("/proc/self/fd"))


class StoreClock:
    now = 1000.0

    def __call__(self):
        return self.now


class StoreNode:
    """A store, its clock, and the sessions that live, or are known."""

    def __init__(self):
        self.clock, self.alive, self.known = StoreClock(), {"owner", "reader"}, {"owner", "reader"}
        self.store = PublicationStore(self.clock)

    def put(self, key="k1", name="points", *, replace=False, digest=b"", lease=LEASE, vrdd=0, session="owner"):
        details = PublicationDetails(name, key, "an application", "x", "device", 2, lease, digest)
        self.store.put(PutPublication(session, b"", details, replace, (SharedSegment("", 256),), 0, 8, "owner",
                                          vrdd), [os.open(os.devnull, os.O_RDONLY)])

    def take(self, name="points", key="", *, digest=b"", vrdd=5):
        published, descriptors = self.store.take(GetPublication("reader", b"", name, key, digest, vrdd))
        for descriptor in descriptors:
            os.close(descriptor)
        return published.details.key

    def detach(self, vrdd=5):
        self.store.detach(DetachPublications("reader", b"", (vrdd,)))

    def expire(self, seconds=0.0):
        self.clock.now += seconds
        return self.store.expire(lambda session: session in self.alive if session in self.known else None)


@pytest.fixture
def node():
    before = open_descriptors()
    node = StoreNode()
    yield node
    node.store.validate()
    node.store.close()
    assert open_descriptors() == before


def test_a_publication_lives_with_its_owner_and_for_its_lease(node):
    node.put()
    assert node.expire(1e6) is None and node.take() == "k1"
    node.detach()
    node.alive.remove("owner")
    assert node.expire() == node.clock.now + LEASE
    assert node.expire(LEASE - 1) is not None and node.take() == "k1"
    node.detach()
    node.expire()
    node.expire(LEASE)
    with pytest.raises(PublicationLost, match=r"'points' is not there any more: its lease of 10 s .* 0 s ago"):
        node.take()
    assert node.store.is_empty


def test_a_reader_keeps_it_after_its_owner(node):
    node.put()
    node.take()
    node.alive.remove("owner")
    node.known.remove("owner")
    assert node.expire(1e6) is None
    node.detach()
    assert node.expire() == node.clock.now + LEASE
    node.take(vrdd=6)
    node.alive.remove("reader")
    node.known.remove("reader")
    node.expire()
    node.expire(LEASE)
    assert node.store.is_empty


def test_a_reader_that_lapses_and_comes_back_is_a_reader_still(node):
    node.put()
    node.take()
    node.alive.clear()
    node.expire()
    node.alive.add("reader")
    assert node.expire(LEASE - 1) is None
    assert node.expire(LEASE) is None


def test_a_name_is_taken_once_and_replaced_when_asked_for(node):
    node.put()
    with pytest.raises(PublicationExists, match=r"'points' already, of the application 'an application'.*replace=True"):
        node.put("k2")
    node.take()
    node.put("k2", replace=True)
    assert node.take(vrdd=6) == "k2" and node.take(key="k1") == "k1"     # the reader of the old one goes on
    node.detach(5)
    node.expire()
    with pytest.raises(PublicationLost, match=r"no publication|not there any more"):
        node.take("points", "k1")
    assert node.take(vrdd=6) == "k2"


def test_what_is_taken_back_goes_with_its_last_reader(node):
    node.put()
    node.take()
    node.store.unpublish("points")
    assert node.expire() is None and node.take(key="k1") == "k1"
    with pytest.raises(PublicationLost, match="it was taken back"):
        node.take()
    node.detach()
    node.expire()
    assert node.store.is_empty
    with pytest.raises(PublicationLost):
        node.store.unpublish("points")


def test_another_secret_is_refused(node):
    node.put(digest=b"s" * 32)
    for digest in (b"", b"t" * 32):
        with pytest.raises(Unauthorized, match="'points' is attached with its secret only"):
            node.take(digest=digest)
    assert node.take(digest=b"s" * 32) == "k1"


def test_an_unknown_name_lists_those_that_are_there(node):
    node.put()
    with pytest.raises(PublicationLost, match=r"no publication 'other' .* there are: 'points'"):
        node.take("other")


def test_a_daemon_that_takes_another_s_place_gets_it_from_owner_and_readers(node):
    node.put()
    node.put(vrdd=5, session="reader")
    node.put(vrdd=5, session="reader")
    report, = node.store.report().publications
    assert (report.readers, report.nbytes, report.expires) == (1, 256, -1.0)
    node.put("k2", vrdd=6, session="reader")        # one that was replaced has its readers still
    assert [each.key for each in node.store.report().publications] == ["k1"]
    assert node.take(key="k2", vrdd=6) == "k2"


def test_a_defect_of_what_is_done_in_the_background_is_in_the_log(caplog):
    publications = ProcessPublications("owner", b"", None, None)

    def fails() -> None:
        raise KeyError("a defect")

    publications._later(fails)
    publications.close()
    assert "a defect" in caplog.text


@pytest.mark.parametrize("changes", [{"name": ""}, {"name": "x" * (MAX_NAME + 1)}, {"name": "a\nb"}, {"lease": 0.0},
                                     {"lease": float("inf")}, {"lease": float("nan")}, {"digest": b"short"}])
def test_what_is_not_as_it_should_be_is_refused(node, changes):
    with pytest.raises(ProtocolError):
        node.put(**changes)
    assert node.store.is_empty
