"""Server side of a device process: connections, requests, snapshots."""
