"""The device process: connections, requests, snapshots."""
