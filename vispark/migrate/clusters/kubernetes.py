"""Clusters of Kubernetes: a namespace with a tag, an account for drivers and a quota; Spark's own client submits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpu_worker.commands.deployment import templates
from gpu_worker.commands.deployment.errors import ClusterError, ClusterRefused
from gpu_worker.commands.deployment.platforms import (
    ABSENT,
    ENDED,
    READY,
    ClusterParameter,
    ClusterStatus,
    SubmitSettings,
    matches,
    whole,
)
from gpu_worker.commands.deployment.records import Record
from vispark.errors import OptionError
from vispark.migrate.clusters import executors
from vispark.migrate.clusters.kubernetes_api import KubernetesApi, KubernetesRefusal, connected

#: Labels of the namespace and of all pods.
ID, NAME, OWNER = "vispark/id", "vispark/cluster", "app.kubernetes.io/managed-by"
_ACCOUNT = "vispark"
#: Letters of a cluster's name, which is part of the namespace's.
_LONGEST = 55

_PARAMETERS = (
    ClusterParameter("image", "vispark:latest", matches(r"[\w.:/@-]+", "the name of an image"), "Container image."),
    *(replace(each, check=whole(1, 1000)) if each.name == "executors" else each for each in executors.PARAMETERS),
    ClusterParameter("discovery", "/usr/local/lib/python3.12/site-packages/gpu_worker/system/gpus.sh",
                     matches(r"/\S+", "an absolute path"), "Discovery script in the image: gpu-worker gpus --script."),
    ClusterParameter("context", "", matches(r"\S*", "a context, or empty"), "Of kubeconfig; empty: the current one."),
    ClusterParameter("api", "", matches(r"(https?://\S+)?", "an address of an API, or empty"),
                     "An API without credentials, as of kubectl proxy; empty: kubeconfig's."),
)


class KubernetesPlatform(executors.ExecutorFiles):
    """Platform of namespaces. Nothing runs between programs; executors end when they are idle."""

    parameters = _PARAMETERS

    def plan(self, record: Record) -> dict[str, Any]:
        """Return the objects, and the settings of programs."""
        return {"objects": objects(record), "conf": _settings(record)}

    def create(self, record: Record) -> dict[str, str]:
        """Create the objects that are not there yet.

        Raises
        ------
        ClusterRefused
            If nothing is created: the API refuses, or does not say whether the namespace is there.
        ClusterError
            If it is not known what is created.
        """
        templates.write("kubernetes", Path(record.details["place"]), templates.values(image=record.parameters["image"]),
                        replace=True)
        with _api(record) as api:
            namespace, *others = objects(record)
            is_there = _own_namespace(api, record)
            if not is_there:
                api.call("POST", "/api/v1/namespaces", namespace)
            try:
                for manifest in others:
                    _create(api, manifest)
            except KubernetesRefusal as error:
                _take_back(api, record, error)
                raise
            return {"api": api.address, "namespace": _namespace(record)}

    def status(self, record: Record) -> ClusterStatus:
        """Return the status by the namespace and its pods."""
        with _api(record) as api:
            namespace = _found(api, record)
            if namespace is None:
                return _status(record, ABSENT, {})
            if not _is_own(namespace, record):
                return _status(record, ABSENT, {"namespace": f"{_namespace(record)}, which others created"})
            pods = (api.call("GET", f"{_path(record)}/pods") or {}).get("items", [])
            phase = namespace.get("status", {}).get("phase", "Active")
            details = {"api": api.address, "namespace": _namespace(record), "phase": phase, "pods": str(len(pods))}
            return _status(record, READY if phase == "Active" else ENDED, details)

    def unrecorded(self, records: list[Record], region: str) -> list[ClusterStatus]:
        """Return the namespaces with vispark's labels, of the APIs that records name."""
        statuses = []
        for record in {(each.parameters["api"], each.parameters["context"]): each for each in records}.values():
            with _api(record) as api:
                path = f"/api/v1/namespaces?labelSelector={quote(f'{OWNER}=vispark')}"
                for namespace in (api.call("GET", path) or {}).get("items", []):
                    labels = namespace["metadata"].get("labels", {})
                    if labels.get(ID):
                        statuses.append(ClusterStatus(labels.get(NAME, ""), labels[ID], "kubernetes", READY,
                                                      details=record.parameters | {"place": record.details["place"]}))
        return statuses

    def delete(self, record: Record) -> bool:
        """Delete the namespace, and with it all that is in it."""
        with _api(record) as api:
            namespace = _found(api, record)
            if namespace is not None and not _is_own(namespace, record):
                raise ClusterRefused(f"the namespace {_namespace(record)} does not have the label {ID}={record.id}: "
                                     "others created it; it is left as it is")
            if namespace is not None:
                api.call("DELETE", _path(record), {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {
                    "uid": namespace["metadata"].get("uid")}})
                namespace = api.call("GET", _path(record))
            return namespace is None

    def submission(self, record: Record) -> SubmitSettings:
        """Return the API, the namespace, and executors that end when they are idle."""
        if not record.details.get("api"):
            raise ClusterError(f"cluster {record.name} was not created to its end: create it again, with the same "
                               "parameters")
        return SubmitSettings(f"k8s://{record.details['api']}", _settings(record), ("--deploy-mode", "client"))


def objects(record: Record) -> list[dict[str, Any]]:
    """Return the objects of a cluster: namespace, account, its rights, and a quota of pods and GPUs."""
    if len(record.name) > _LONGEST:
        raise OptionError(f"the name of a namespace has room for a cluster's name of {_LONGEST} at most, not "
                          f"{record.name!r}")
    values, labels = record.parameters, {ID: record.id, NAME: record.name, OWNER: "vispark"}

    def made(version: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
        place = {} if kind == "Namespace" else {"namespace": _namespace(record)}
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels, **place}, **fields}

    gpus = int(values["gpus"]) * int(values["executors"])
    return [made("v1", "Namespace", _namespace(record)),
            made("v1", "ServiceAccount", _ACCOUNT),
            made("rbac.authorization.k8s.io/v1", "RoleBinding", _ACCOUNT,
                 roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
                 subjects=[{"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": _namespace(record)}]),
            made("v1", "ResourceQuota", _ACCOUNT, spec={"hard": {
                "pods": str(2 * int(values["executors"]) + 2), "requests.nvidia.com/gpu": str(gpus)}})]


def _settings(record: Record) -> dict[str, str]:
    values, kubernetes = record.parameters, "spark.kubernetes."
    conf = {f"{kubernetes}namespace": _namespace(record), f"{kubernetes}container.image": values["image"],
            f"{kubernetes}authenticate.driver.serviceAccountName": _ACCOUNT,
            f"{kubernetes}executor.podTemplateFile": f"{record.details['place']}/executor.yaml",
            f"{kubernetes}executor.label.{ID}": record.id, f"{kubernetes}driver.label.{ID}": record.id,
            **executors.settings(values, values["discovery"])}
    if values["context"]:
        conf[f"{kubernetes}context"] = values["context"]
    if int(values["gpus"]):
        conf["spark.executor.resource.gpu.vendor"] = "nvidia.com"
    return conf


def _create(api: KubernetesApi, manifest: dict[str, Any]) -> None:
    """Create an object in a namespace; one that is there already stays."""
    group = "/api/v1" if manifest["apiVersion"] == "v1" else f"/apis/{manifest['apiVersion']}"
    try:
        kinds = f"{manifest['kind'].lower()}s"
        api.call("POST", f"{group}/namespaces/{manifest['metadata']['namespace']}/{kinds}", manifest)
    except KubernetesRefusal as error:
        if error.status != 409:
            raise


def _take_back(api: KubernetesApi, record: Record, refusal: KubernetesRefusal) -> None:
    """Delete the namespace of a creation that was refused later on.

    Raises
    ------
    ClusterError
        If that fails; it is no refusal, so that the record stays.
    """
    try:
        api.call("DELETE", _path(record))
    except ClusterError as error:
        raise ClusterError(f"{refusal.message}; its namespace {_namespace(record)} is still there, as {error.message}; "
                           f"vispark cluster delete {record.name} deletes it when that works") from error


def _own_namespace(api: KubernetesApi, record: Record) -> bool:
    """Return whether the namespace is there already, by a creation that was cut short.

    Raises
    ------
    ClusterRefused
        If others created it, or the API does not say: nothing has been created by then.
    """
    try:
        namespace = _found(api, record)
    except ClusterError as error:
        raise ClusterRefused(f"{error.message}; nothing was created") from error
    if namespace is not None and not _is_own(namespace, record):
        raise ClusterRefused(f"there is a namespace {_namespace(record)} already, which this command did not create; "
                             "choose another name")
    return namespace is not None


def _found(api: KubernetesApi, record: Record) -> dict[str, Any] | None:
    """Return the namespace of a cluster's name, whoever created it; None where there is none.

    Raises
    ------
    ClusterError
        If the answer is no namespace.
    """
    namespace = api.call("GET", _path(record))
    if namespace is not None and namespace.get("metadata", {}).get("name") != _namespace(record):
        raise ClusterError(f"the Kubernetes API {api.address} answers GET {_path(record)} by what is no namespace: "
                           f"{str(namespace)[:80]}")
    return namespace


def _is_own(namespace: dict[str, Any], record: Record) -> bool:
    return bool(namespace.get("metadata", {}).get("labels", {}).get(ID) == record.id)


def _api(record: Record) -> Any:
    return connected(record.parameters["api"], record.parameters["context"])


def _namespace(record: Record) -> str:
    return f"vispark-{record.name.lower()}"


def _path(record: Record) -> str:
    return f"/api/v1/namespaces/{_namespace(record)}"


def _status(record: Record, state: str, details: dict[str, str]) -> ClusterStatus:
    return ClusterStatus(record.name, record.id, record.platform, state, details=details)


PLATFORM = KubernetesPlatform()
