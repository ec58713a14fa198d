"""Exchange between the device processes of a session over UCX.

The device processes are themselves the ends of the connections: no further process, no mpirun, and no copy to memory
that another process shares. The driver brings each of them the addresses of the others. Where UCX reaches a device's
memory, messages leave from it and arrive in it.
"""
