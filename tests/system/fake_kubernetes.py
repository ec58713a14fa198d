"""Kubernetes API on loopback that keeps objects, checks them by their schemas, and runs pods as processes here.

It is what Spark's client and vispark's ask: objects of any kind, lists by labels, watches, patches of labels. A pod's
container runs by the entry point of our image, with the volumes of its configuration as folders.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate
import platformdirs

from gpu_worker.commands.deployment import templates
from tests.system.topology import jvm_options
from tests.system.worker_tools import stop_worker

ROOT = Path(__file__).resolve().parents[2]
_SCHEMAS = kubernetes_validate.latest_version()
_KINDS = {"pods": "Pod", "configmaps": "ConfigMap", "services": "Service", "namespaces": "Namespace",
          "serviceaccounts": "ServiceAccount", "rolebindings": "RoleBinding", "resourcequotas": "ResourceQuota",
          "networkpolicies": "NetworkPolicy", "persistentvolumeclaims": "PersistentVolumeClaim"}


class FakeKubernetes:
    """Kubernetes API, and the one node that its pods run on.

    Parameters
    ----------
    folder : Path
        Logs and volumes of pods go there.

    Attributes
    ----------
    problems : list of str
        Objects that are not valid by their schemas.
    made : dict of str to list
        All objects that were made, by kind.
    answers : list
        What is answered to the next requests in place of what would be: a status, bytes, or None for a closed
        connection.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.objects: dict[str, dict[str, dict[str, Any]]] = {}
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.made: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.answers: list[int | bytes | None] = []
        self._watchers: list[tuple[str, str, queue.Queue[Any]]] = []
        self._lock = threading.RLock()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._pods = 0
        self._hosts = {"127.0.0.1": {"localhost", socket.gethostname()}}
        self._write_hosts()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,))
        self._thread.start()

    def close(self) -> None:
        """End pods and server."""
        with self._lock:
            for _, _, events in self._watchers:
                events.put(None)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for process in self._processes.values():
            _kill(process)
        # A daemon has a session of its own, and outlives its pod's processes here.
        for number in range(1, self._pods + 1):
            stop_worker(self.folder / f"r{number}")

    # -- objects --

    def create(self, collection: str, resource: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Keep an object, and start it where it is a pod."""
        name = resource["metadata"].get("name") or f"{resource['metadata']['generateName']}{uuid.uuid4().hex[:6]}"
        resource["metadata"] |= {"name": name, "uid": str(uuid.uuid4()), "resourceVersion": "1",
                                 "creationTimestamp": "2026-01-01T00:00:00Z"}
        kind = collection.rpartition("/")[2]
        self._validate(resource, kind)
        with self._lock:
            if name in self.objects.setdefault(collection, {}):
                return 409, _refusal(409, f"{kind} {name!r} already exists", "AlreadyExists")
            if kind == "namespaces":
                resource["status"] = {"phase": "Active"}
            self.objects[collection][name] = resource
            self.made[kind].append(resource)
            if kind == "pods":
                resource["status"] = {"phase": "Pending"}
            self._tell(collection, "ADDED", resource)
            if kind in ("pods", "configmaps", "services"):
                self._start_pods(collection.rpartition("/")[0])
        return 201, resource

    def _validate(self, resource: dict[str, Any], kind: str) -> None:
        checked = {"apiVersion": "v1", "kind": _KINDS.get(kind, ""), **resource}
        checked["metadata"] = {key: value for key, value in resource["metadata"].items() if key != "managedFields"}
        try:
            kubernetes_validate.validate(checked, _SCHEMAS, strict=True)
        except (kubernetes_validate.ValidationError, kubernetes_validate.InvalidSchemaError) as error:
            self.problems.append(f"{kind} {resource['metadata']['name']}: {error}")

    def patch(self, collection: str, name: str, changes: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Merge changes of metadata; an object that is not there is made, as server-side apply does."""
        with self._lock:
            resource = self.objects.get(collection, {}).get(name)
            if resource is None:
                return self.create(collection, changes)
            labels = changes.get("metadata", {}).get("labels", {})
            resource["metadata"].setdefault("labels", {}).update(labels)
            self._tell(collection, "MODIFIED", resource)
            return 200, resource

    def delete(self, collection: str, names: list[str]) -> None:
        """Delete objects; of a namespace all that is in it."""
        with self._lock:
            for name in names:
                resource = self.objects.get(collection, {}).pop(name, None)
                if resource is None:
                    continue
                if (process := self._processes.pop(resource["metadata"]["uid"], None)) is not None:
                    _kill(process)
                self._tell(collection, "DELETED", resource)
                if collection.endswith("/namespaces"):
                    for inner in [each for each in self.objects if f"/namespaces/{name}/" in each]:
                        self.delete(inner, list(self.objects[inner]))

    def selected(self, collection: str, selector: str) -> list[dict[str, Any]]:
        """Return the objects of a collection, with the labels that a selector asks for."""
        with self._lock:
            return [each for each in self.objects.get(collection, {}).values() if _has(each, selector)]

    def watch(self, collection: str, selector: str) -> queue.Queue[Any]:
        """Return a queue of a watch's events."""
        events: queue.Queue[Any] = queue.Queue()
        with self._lock:
            self._watchers.append((collection, selector, events))
        return events

    def _tell(self, collection: str, event: str, resource: dict[str, Any]) -> None:
        for of, selector, events in self._watchers:
            if of == collection and _has(resource, selector):
                events.put({"type": event, "object": json.loads(json.dumps(resource))})

    def _name_services(self, namespace: str) -> None:
        """Have the names of services lead to the pods that they select, for Java."""
        for service in self.objects.get(f"{namespace}/services", {}).values():
            for pod in self.objects.get(f"{namespace}/pods", {}).values():
                if service["spec"]["selector"].items() <= pod["metadata"].get("labels", {}).items():
                    name = f"{service['metadata']['name']}.{namespace.rpartition('/')[2]}.svc"
                    self._hosts.setdefault(pod["status"].get("podIP", ""), set()).add(name)
        self._write_hosts()

    def _write_hosts(self) -> None:
        (self.folder / "hosts").write_text("".join(f"{address} {' '.join(sorted(names))}\n"
                                                   for address, names in self._hosts.items() if address))

    # -- pods --

    def _start_pods(self, namespace: str) -> None:
        """Start the pods whose volumes are there, as Spark makes a driver's configuration after its pod."""
        maps = self.objects.get(f"{namespace}/configmaps", {})
        for pod in list(self.objects.get(f"{namespace}/pods", {}).values()):
            wanted = {each["configMap"]["name"] for each in pod["spec"].get("volumes", []) if "configMap" in each}
            if pod["status"]["phase"] == "Pending" and wanted <= maps.keys():
                self._run(f"{namespace}/pods", pod)
                self._tell(f"{namespace}/pods", "MODIFIED", pod)
        self._name_services(namespace)

    def _run(self, collection: str, pod: dict[str, Any]) -> None:
        """Start a pod's first container."""
        self._pods += 1
        name, address = pod["metadata"]["name"], f"127.0.0.{10 + self._pods}"
        place = self.folder / name
        place.mkdir()
        (container, *_), spec = pod["spec"]["containers"], pod["spec"]
        mounts = self._mounted(collection, place, container, spec)
        environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(place),
                       # Kernels are compiled once for all pods of all tests.
                       "XDG_CACHE_HOME": platformdirs.user_cache_dir(),
                       "JAVA_TOOL_OPTIONS": f"{jvm_options()} -Djdk.net.hosts.file={self.folder}/hosts",
                       "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
        for variable in container.get("env", []):
            path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
            value = {"status.podIP": address, "metadata.name": name}.get(path, variable.get("value", ""))
            environment[variable["name"]] = _moved(value, mounts)
        # Short, because a socket's path in it may have no more than 107 bytes.
        runtime = self.folder / f"r{self._pods}"
        runtime.mkdir(mode=0o700)
        environment |= {"VISPARK_RUNTIME_DIR": str(runtime)}
        limits = container.get("resources", {}).get("limits", {})
        gpus = int(limits.get("nvidia.com/gpu", 0))
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(gpus)))
        entry = place / "entrypoint.sh"
        entry.write_text(templates.template("docker/entrypoint.sh"))
        words = [_moved(each, mounts) for each in container.get("args", [])]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(["bash", str(entry), *words], env=environment, cwd=place, stdout=log, stderr=log,
                                       stdin=subprocess.DEVNULL, start_new_session=True)
        self._processes[pod["metadata"]["uid"]] = process
        pod["status"] = _phase("Running", address)
        threading.Thread(target=self._ended, args=(collection, pod, process, address), daemon=True).start()

    def _mounted(self, collection: str, place: Path, container: dict[str, Any], spec: dict[str, Any]) -> dict[str, str]:
        """Make the folders of a container's volumes; return them by the paths that it has them under."""
        volumes = {each["name"]: each for each in spec.get("volumes", [])}
        folders = {}
        for mount in container.get("volumeMounts", []):
            folder = place / "volumes" / mount["name"]
            folder.mkdir(parents=True, exist_ok=True)
            if config := volumes.get(mount["name"], {}).get("configMap"):
                maps = self.objects.get(collection.removesuffix("pods") + "configmaps", {})
                data = maps[config["name"]].get("data", {})
                paths = {each["key"]: each["path"] for each in config.get("items", [])} or {each: each for each in data}
                for key, path in paths.items():
                    (folder / path).write_text(data[key])
            folders[mount["mountPath"]] = str(folder)
        for file in (place / "volumes").glob("*/*"):
            file.write_text(_moved(file.read_text(), folders))
        return folders

    def _ended(self, collection: str, pod: dict[str, Any], process: subprocess.Popen[bytes], address: str) -> None:
        status = process.wait()
        with self._lock:
            if pod["metadata"]["name"] in self.objects.get(collection, {}):
                pod["status"] = _phase("Failed" if status else "Succeeded", address, status)
                self._tell(collection, "MODIFIED", pod)


def _handler(fake: FakeKubernetes) -> type[BaseHTTPRequestHandler]:
    class ApiHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_ANY(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fake.requests.append(f"{self.command} {self.path}")
            if fake.answers:
                self._instead(fake.answers.pop(0))
                return
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            if self.headers.get("Upgrade", "").lower() == "websocket":
                self._answer(503, _refusal(503, "no websockets", "ServiceUnavailable"))
            elif query.get("watch") == "true":
                self._watch(parts.path, query)
            else:
                self._answer(*_answered(fake, self.command, parts.path, query, body))

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = do_ANY

        def _instead(self, answer: int | bytes | None) -> None:
            if isinstance(answer, int):
                self._answer(answer, _refusal(answer, "as the test says", "Forbidden"))
                return
            if answer is not None:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
            self.close_connection = True

        def _answer(self, status: int, document: dict[str, Any]) -> None:
            text = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def _watch(self, path: str, query: dict[str, str]) -> None:
            collection, name = _split(path)
            events = fake.watch(collection, query.get("labelSelector", ""))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                while (event := events.get()) is not None:
                    if not name or event["object"]["metadata"]["name"] == name:
                        text = json.dumps(event).encode() + b"\n"
                        self.wfile.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    return ApiHandler


def _answered(fake: FakeKubernetes, method: str, path: str, query: dict[str, str],
              body: bytes) -> tuple[int, dict[str, Any]]:
    """Answer a request that is no watch."""
    collection, name = _split(path)
    if method == "POST":
        return fake.create(collection, json.loads(body))
    if method in ("PATCH", "PUT"):
        return fake.patch(collection, name, json.loads(body))
    selector = query.get("labelSelector", "")
    if query.get("fieldSelector", "").startswith("metadata.name="):
        name = query["fieldSelector"].partition("=")[2]
        resources = [each for each in fake.selected(collection, selector) if each["metadata"]["name"] == name]
        return 200, _list(collection, resources)
    if not name:
        resources = fake.selected(collection, selector)
        if method == "DELETE":
            fake.delete(collection, [each["metadata"]["name"] for each in resources])
        return 200, _list(collection, resources)
    one = fake.objects.get(collection, {}).get(name)
    if one is None:
        return 404, _refusal(404, f"{name!r} not found", "NotFound")
    if method == "DELETE":
        fake.delete(collection, [name])
    return 200, one


def _split(path: str) -> tuple[str, str]:
    """Return the collection of a path, and the object's name; "" where it is of the collection."""
    match = re.fullmatch(r"(/api/v1|/apis/[^/]+/[^/]+)((?:/namespaces/[^/]+)?/[^/]+)(?:/([^/]+))?(?:/status)?", path)
    if match is None or (match[2].startswith("/namespaces/") and match[2].count("/") == 2):
        *above, last = path.rsplit("/", 1)
        return above[0], last
    return match[1] + match[2], match[3] or ""


def _list(collection: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    kind = _KINDS.get(collection.rpartition("/")[2], "")
    return {"kind": f"{kind}List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}


def _has(resource: dict[str, Any], selector: str) -> bool:
    labels = resource["metadata"].get("labels", {})
    for condition in filter(None, selector.split(",")):
        name, separator, value = condition.partition("!=") if "!=" in condition else condition.partition("=")
        if (labels.get(name) == value) == (separator == "!="):
            return False
    return True


def _phase(phase: str, address: str, status: int = 0) -> dict[str, Any]:
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}} if phase == "Running" else {
        "terminated": {"exitCode": status, "finishedAt": "2026-01-01T00:00:01Z"}}
    return {"phase": phase, "podIP": address, "hostIP": "127.0.0.1", "startTime": "2026-01-01T00:00:00Z",
            "containerStatuses": [{"name": "spark-kubernetes-executor", "ready": phase == "Running", "restartCount": 0,
                                   "image": "vispark", "imageID": "vispark", "state": state}]}


def _refusal(code: int, message: str, reason: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
            "reason": reason, "code": code}


def _moved(text: str, mounts: dict[str, str]) -> str:
    for path, folder in mounts.items():
        text = text.replace(path, folder)
    return text


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a pod's process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
