"""API of Kubernetes over TLS, by Spark's client: certificates that are trusted and others, servers that do not answer.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gpu_worker.commands.deployment.errors import ClusterError
from vispark.migrate.clusters import kubernetes_api
from vispark.migrate.clusters.kubernetes_api import KubernetesApi, KubernetesRefusal, client_jvm

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class _SecretAnswers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        is_known = self.headers.get("Authorization") == "Bearer secret"
        body = json.dumps({"kind": "Namespace"} if is_known else {
            "kind": "Status", "status": "Failure", "code": 401, "message": "Unauthorized"}).encode()
        self.send_response(200 if is_known else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _certificate(folder: Path, name: str) -> Path:
    """Write a file with a key and its own certificate of the loopback address."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    address, day = x509.IPAddress(ipaddress.ip_address("127.0.0.1")), datetime.timedelta(1)
    certificate = (x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
                   .serial_number(1).not_valid_before(now - day).not_valid_after(now + day)
                   .add_extension(x509.SubjectAlternativeName([address]), False)
                   .add_extension(x509.BasicConstraints(True, None), True).sign(key, hashes.SHA256()))
    path = folder / f"{name}.pem"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return path


@contextmanager
def _server(certificate: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _SecretAnswers)
    server.daemon_threads, server.handle_error = True, lambda *_: None      # type: ignore[method-assign,assignment]
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.1,))
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _settings(path: Path, contexts: dict[str, dict[str, str]]) -> None:
    """Write a kubeconfig, whose contexts are of one cluster and one user each."""
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": next(iter(contexts)),
        "clusters": [{"name": name, "cluster": {key: value for key, value in each.items() if key != "token"}}
                     for name, each in contexts.items()],
        "users": [{"name": name, "user": {"token": each.get("token", "secret")}} for name, each in contexts.items()],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name in contexts]}))


def test_certificates_and_servers_that_do_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ours, others = _certificate(tmp_path, "ours"), _certificate(tmp_path, "others")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with _server(ours) as address, socket.create_server(("127.0.0.1", 0)) as silent:
        there = {"server": address, "certificate-authority": str(ours)}
        _settings(tmp_path / "config", {
            "trusted": there, "untrusted": {**there, "certificate-authority": str(others)},
            "unknown": {**there, "token": "wrong"}, "plain": {"server": address.replace("https", "http")},
            "silent": {"server": f"http://127.0.0.1:{silent.getsockname()[1]}"}})
        with client_jvm() as jvm:
            def asked(context: str) -> Any:
                with closing(KubernetesApi(jvm, "", context)) as api:
                    return api.call("GET", "/api/v1/namespaces/x")

            assert asked("trusted") == {"kind": "Namespace"}
            with pytest.raises(KubernetesRefusal, match=r"refuses GET .*Unauthorized"):
                asked("unknown")
            for context, message in [("untrusted", "certif"), ("plain", ""), ("silent", "time")]:
                if context == "silent":
                    monkeypatch.setattr(kubernetes_api, "ANSWER", 500)
                with pytest.raises(ClusterError, match=rf"does not answer GET .*(?i:{message})") as failed:
                    asked(context)
                assert not isinstance(failed.value, KubernetesRefusal)
