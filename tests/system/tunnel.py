"""The transport of docs/development/add_a_transport.md: TCP through a forwarded port, as of an SSH tunnel."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import replace

from gpu_worker.client.tcp import TcpTransport
from gpu_worker.protocol.messages import Reach
from gpu_worker.protocol.transport_kinds import TransportKind

HOST = "127.0.0.1"

#: The entry in the table of kinds.
TUNNEL = TransportKind("tunnel", "through a tunnel", "to another node, through a forwarded port",
                       "tests.system.tunnel:TunnelTransport", crosses_machines=True, needs_address=True)


class Tunnel:
    """A local port whose connections are forwarded to a worker's; ``carried`` counts the bytes of both directions."""

    def __init__(self, reach: Reach):
        self.carried = 0
        self._target = reach.host, reach.port
        self._listener = socket.create_server((HOST, 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        return self._listener.getsockname()[1]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._open.append(near)
                try:
                    far = socket.create_connection(self._target)
                except OSError:
                    near.close()
                    continue
                self._open.append(far)
                for ends in ((near, far), (far, near)):
                    self._threads.append(threading.Thread(target=self._pump, args=ends, daemon=True))
                    self._threads[-1].start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.carried += len(data)
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for sock in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for sock in (self._listener, *self._open):
            sock.close()


#: By the worker's address, the tunnels of this process.
tunnels: dict[tuple[str, int], Tunnel] = {}


class TunnelTransport(TcpTransport):
    """Transport to a worker of another node through a local port."""

    kind = "tunnel"

    @property
    def reach(self) -> Reach:
        there = super().reach
        tunnel = tunnels.get((there.host, there.port)) or tunnels.setdefault((there.host, there.port), Tunnel(there))
        return replace(there, host=HOST, port=tunnel.port)


def close_tunnels() -> int:
    """Close all tunnels; give the bytes that they carried."""
    opened, carried = list(tunnels.values()), 0
    tunnels.clear()
    for tunnel in opened:
        tunnel.close()
        carried += tunnel.carried
    return carried
