"""API of a Kubernetes cluster, asked through the client that Spark itself submits with: fabric8's, in PySpark's JARs.

So kubeconfig, contexts, certificates and login commands mean here what they mean to ``spark-submit``.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.find_spark_home import _find_spark_home

from gpu_worker.commands.deployment.errors import ClusterError, ClusterRefused

#: Milliseconds for a connection, and for an answer.
CONNECT, ANSWER = 5_000, 20_000


class KubernetesRefusal(ClusterRefused):
    """Answer of the API that refuses a request, with its HTTP status."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status


class KubernetesApi:
    """Connection to the API of a cluster.

    Parameters
    ----------
    jvm : py4j.java_gateway.JVMView
        A JVM with the client's classes.
    address : str
        Of the API, without credentials, as of ``kubectl proxy``; where it is empty, what kubeconfig says.
    context : str
        A context of kubeconfig; the current one where it is empty.
    """

    def __init__(self, jvm: Any, address: str, context: str):
        package = jvm.io.fabric8.kubernetes.client
        settings = package.Config.empty() if address else package.Config.autoConfigure(context or None)
        builder = package.ConfigBuilder(settings)
        if address:
            builder = builder.withMasterUrl(address)
        config = (builder.withConnectionTimeout(CONNECT).withRequestTimeout(ANSWER).withRequestRetryBackoffLimit(0)
                  .build())
        self.address: str = config.getMasterUrl().rstrip("/")
        self._client = package.KubernetesClientBuilder().withConfig(config).build()

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """Send a request, and return its answer; None where the API says that there is no such object.

        Raises
        ------
        KubernetesRefusal
            If the API refuses; nothing has changed.
        ClusterError
            If it does not answer, or answers what is no JSON object.
        """
        try:
            text = self._client.raw(path, method, json.dumps(body) if body is not None else None)
        except Py4JJavaError as error:
            self._failed(error, method, path)
            return None
        except Py4JError as error:
            raise ClusterError(f"the JVM that asks the Kubernetes API ended: {error}") from error
        try:
            answer = json.loads(text) if text is not None else None
        except ValueError as error:
            raise ClusterError(f"the Kubernetes API {self.address} answers {method} {path} by what is no JSON: "
                               f"{text[:80]!r}") from error
        if answer is not None and not isinstance(answer, dict):
            raise ClusterError(f"the Kubernetes API {self.address} answers {method} {path} by {text[:80]!r}")
        return answer

    def _failed(self, error: Py4JJavaError, method: str, path: str) -> None:
        """Raise the error of a request that failed, unless it says that there is no such object."""
        java = error.java_exception
        status = java.getCode() if java.getClass().getSimpleName() == "KubernetesClientException" else -1
        if status == 404:
            return
        message = _message(" ".join(str(java.getMessage()).split()))[:300]
        if 400 <= status < 500:
            raise KubernetesRefusal(f"the Kubernetes API {self.address} refuses {method} {path}: {message}",
                                    status) from error
        cause = java
        while (deeper := cause.getCause()) is not None:
            cause = deeper
        # The last one names the certificate, where that is what is wrong.
        message += f" {cause.toString()}"[:200] if cause is not java else ""
        does = "fails at" if status >= 500 else "does not answer"
        raise ClusterError(f"the Kubernetes API {self.address} {does} {method} {path}: {message}") from error

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def _message(text: str) -> str:
    """Return the API's own message of an error of the client, which has it between the request and the status.

    Examples
    --------
    >>> _message("Failure executing: GET at: http://api/x. Message: etcd is down. Received status: Status(code=500).")
    'etcd is down'
    """
    match = re.search(r"\bMessage: (.*?)\.? Received status:", text)
    return match[1] if match else text


@contextmanager
def client_jvm() -> Iterator[Any]:
    """Yield the view of a JVM with the client's classes, which ends with the block.

    Raises
    ------
    ClusterError
        If there is no Java.
    """
    jars = Path(_find_spark_home()) / "jars"
    (jar,) = jars.glob("py4j-*.jar")
    try:
        port, token, process = launch_gateway(
            jarpath=str(jar), classpath=f"{jars}/*", die_on_exit=True, enable_auth=True, return_proc=True,
            javaopts=["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"], redirect_stdout=subprocess.DEVNULL,
            redirect_stderr=subprocess.DEVNULL)
    except (OSError, ValueError, Py4JError) as error:
        raise ClusterError(f"a JVM for the Kubernetes client does not start: {error}") from error
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait(10)


@contextmanager
def connected(address: str = "", context: str = "") -> Iterator[KubernetesApi]:
    """Yield a connection, in a JVM that ends with the block.

    Raises
    ------
    ClusterError
        If there is no Java, or kubeconfig cannot be used.
    """
    with client_jvm() as jvm:
        try:
            api = KubernetesApi(jvm, address, context)
        except Py4JJavaError as error:
            raise ClusterError(f"the settings of Kubernetes cannot be used: {error.java_exception.getMessage()}"
                               ) from error
        with closing(api):
            yield api
