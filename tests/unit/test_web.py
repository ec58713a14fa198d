"""Pages for a browser: who may read them, and what a server says that cannot listen."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpu_worker.commands.web import server, stream
from gpu_worker.commands.web.access import Access
from gpu_worker.commands.web.guard import POLICY, PageGuard
from gpu_worker.protocol.errors import WorkerError
from tests.system.worker_tools import eventually

testclient = pytest.importorskip("starlette.testclient")
responses = pytest.importorskip("starlette.responses")
starlette = pytest.importorskip("starlette.applications")
routing = pytest.importorskip("starlette.routing")


async def _application(scope, receive, send):
    response = responses.PlainTextResponse(f"page {scope['path']}", headers={"Referrer-Policy": "unsafe-url"})
    await response(scope, receive, send)


@pytest.fixture
def access() -> Access:
    return Access()


@pytest.fixture
def browser(access: Access) -> Iterator[testclient.TestClient]:
    guard = PageGuard(_application, access, names=["node7"], open_paths=["/health"], again="ask for another")
    yield testclient.TestClient(guard, base_url="http://127.0.0.1:8050", follow_redirects=False)


def test_a_link_opens_once(browser: testclient.TestClient, access: Access):
    token = access.new_token()
    opened = browser.get(f"/?token={token}&view=memory")
    assert opened.status_code == 200 and token not in opened.text and "url=./?view=memory" in opened.text
    assert browser.get("/").text == "page /"
    used = browser.get(f"/?token={token}")
    assert used.status_code == 403 and "opened already" in used.text and "ask for another" in used.text


@pytest.mark.parametrize(("listened", "names", "named"), [
    ("127.0.0.1", ["node7"], "http://127.0.0.1"), ("::1", [], "http://[::1]"), ("0.0.0.0", [], "https://127.0.0.1"),
    ("0.0.0.0", ["node7", "n7"], "https://node7")])
def test_an_address_is_one_that_a_browser_can_open(listened: str, names: list[str], named: str):
    is_certified = named.startswith("https")
    with server.listen(listened, 0, is_certified) as sock:
        assert server.address(sock, is_certified, names) == f"{named}:{sock.getsockname()[1]}"


def test_what_a_cookie_is(browser: testclient.TestClient, access: Access):
    cookie = browser.get(f"/?token={access.new_token()}").headers["set-cookie"]
    assert cookie == f"{access.cookie_name}={access.cookie}; HttpOnly; SameSite=Strict"
    assert access.secret not in cookie
    assert Access().cookie_name != access.cookie_name


def test_a_cookie_of_https_is_for_https_alone(access: Access):
    client = testclient.TestClient(PageGuard(_application, access), base_url="https://127.0.0.1")
    assert client.get(f"/?token={access.new_token()}").headers["set-cookie"].endswith("; Secure")


@pytest.mark.parametrize("headers", [{}, {"Cookie": "a=b"}, {"Cookie": 'x="'}, {"Authorization": "Bearer"},
                                     {"Authorization": "Bearer wrong"}, {"Authorization": "Basic wrong"}])
def test_without_a_right_nothing_is_read(browser: testclient.TestClient, headers: dict[str, str]):
    answer = browser.get("/data", headers=headers)
    assert answer.status_code == 403 and "page" not in answer.text


@pytest.mark.parametrize("token", ["", "wrong", "%00", "é"])
def test_a_wrong_token_opens_nothing(browser: testclient.TestClient, token: str):
    answer = browser.get(f"/?token={token}")
    assert answer.status_code == 403 and "set-cookie" not in answer.headers


def test_the_secret_is_for_programs_and_no_link(browser: testclient.TestClient, access: Access):
    assert browser.get("/metrics", headers={"Authorization": f"Bearer {access.secret}"}).status_code == 200
    assert browser.get(f"/?token={access.secret}").status_code == 403


def test_a_link_is_old_after_its_time():
    now = [0.0]
    access = Access(seconds=10.0, clock=lambda: now[0])
    early, late = access.new_token(), access.new_token()
    now[0] = 9.0
    assert access.redeem(early)
    now[0] = 10.0
    assert not access.redeem(late)


def test_another_process_with_the_secret_makes_links(access: Access):
    token = Access(access.secret).new_token()
    assert not Access().redeem(token)
    assert access.redeem(token) and not access.redeem(token)


def test_a_link_cannot_be_made_to_last(access: Access):
    end, name, signature = access.new_token().split(".")
    assert not access.redeem(f"{int(end) + 1}.{name}.{signature}")


@pytest.mark.parametrize("host, status", [("evil.example", 400), ("", 400), ("127.0.0.1.evil.example", 400),
                                          ("localhost:9", 200), ("NODE7", 200), ("[::1]:8050", 200)])
def test_the_host_is_checked_before_all_else(browser: testclient.TestClient, host: str, status: int):
    assert browser.get("/health", headers={"Host": host}).status_code == status


def test_open_paths_need_no_right(browser: testclient.TestClient):
    assert browser.get("/health").text == "page /health"
    assert browser.get("/health/").status_code == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_a_server_is_only_read(browser: testclient.TestClient, access: Access, method: str):
    answer = browser.request(method, "/", headers={"Authorization": f"Bearer {access.secret}"})
    assert answer.status_code == 405 and answer.headers["allow"] == "GET, HEAD"


def test_every_answer_has_the_policy(browser: testclient.TestClient, access: Access):
    for path in ("/", "/health", f"/?token={access.new_token()}", "/again"):
        headers = browser.get(path).headers
        assert headers["content-security-policy"] == POLICY and "unsafe" not in POLICY
        assert headers.get_list("referrer-policy") == ["no-referrer"] and headers["cache-control"] == "no-store"


def test_the_way_back_is_text_and_no_address(browser: testclient.TestClient, access: Access):
    opened = browser.get(f"//evil.example/%22%3E%3Cscript%3E?token={access.new_token()}&x=%22%3E%3Cscript%3E").text
    assert "url=./script?x=%22%3E%3Cscript%3E" in opened and "<script" not in opened


def test_websockets_are_refused(browser: testclient.TestClient):
    with pytest.raises(testclient.WebSocketDisconnect), browser.websocket_connect("/"):
        pass


def test_a_port_that_is_taken():
    with server.listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(WorkerError, match=rf"cannot listen on 127.0.0.1:{port}: .*--port 0"):
            server.listen("127.0.0.1", port)


@pytest.mark.parametrize("host, message", [("0.0.0.0", "--certificate"), ("::", "--certificate"),
                                           ("no-such-host.invalid", "no address of this machine"),
                                           ("127.0.0.1:8050", "; the port is another option, --port")])
def test_addresses_that_are_refused(host: str, message: str):
    with pytest.raises(WorkerError, match=message):
        server.listen(host, 0)


def test_a_unix_socket_is_for_its_user_alone(tmp_path: Path):
    path = tmp_path / "dashboard.socket"
    with server.listen_at_path(path):
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(WorkerError, match=r"cannot listen at .*in use"):
            server.listen_at_path(path)
    server.listen_at_path(path).close()     # what a server that was killed left is replaced


def test_what_else_is_at_a_path_stays(tmp_path: Path):
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(WorkerError, match="in use"):
        server.listen_at_path(path)
    assert path.read_text() == "mine"


def test_a_server_answers_until_it_is_stopped(access: Access):
    sock = server.listen("127.0.0.1", 0)
    application = starlette.Starlette()
    application.add_route("/", lambda request: responses.PlainTextResponse("page"))
    pages = server.PageServer(PageGuard(application, access), sock)
    host, port = sock.getsockname()
    thread = threading.Thread(target=pages.run)
    thread.start()
    try:
        connection = http.client.HTTPConnection(host, port, timeout=60)
        connection.request("GET", "/", headers={"Authorization": f"Bearer {access.secret}"})
        assert connection.getresponse().read() == b"page"
        connection.close()
    finally:
        pages.stop()
        thread.join()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, port))


class _Long(stream.Feed):
    """Feed of events that are longer than what a connection keeps for a viewer that does not read."""

    def look(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"up": True, "text": "x" * (1 << 20)}, {}


def test_a_viewer_that_never_reads_is_left_and_holds_nobody_up(access: Access):
    feed = _Long(0.02)
    events = stream.Events(feed, lambda: pages.is_ending, stalled=0.2)
    application = starlette.Starlette(routes=[routing.Route("/events", events)], lifespan=feed.running)
    sock = server.listen("127.0.0.1", 0)
    pages = server.PageServer(PageGuard(application, access), sock)
    address = sock.getsockname()
    thread = threading.Thread(target=pages.run)
    thread.start()
    connection = http.client.HTTPConnection(*address, timeout=60)
    try:
        with socket.create_connection(address) as silent:
            silent.sendall(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {access.secret}\r\n\r\n"
                           .encode())
            assert eventually(lambda: events.viewers == 1)
            connection.request("GET", "/events", headers={"Authorization": f"Bearer {access.secret}"})
            answer = connection.getresponse()
            seen = most = 0
            while events.viewers != 1 or most < 2:
                most = max(most, events.viewers)
                seen += answer.readline().startswith(b"data: ")
            assert seen > 1 and answer.readline()
    finally:
        connection.close()
        pages.stop()
        thread.join()


def test_a_certificate_that_is_none(tmp_path: Path):
    (tmp_path / "certificate").write_text("none")
    with server.listen("0.0.0.0", 0, is_certified=True) as sock, pytest.raises(WorkerError, match="no certificate"):
        server.PageServer(_application, sock, str(tmp_path / "certificate"))


def test_without_uvicorn(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "uvicorn", None)
    with server.listen("127.0.0.1", 0) as sock, pytest.raises(WorkerError, match=r"'.\[dashboard\]'"):
        server.PageServer(_application, sock)
