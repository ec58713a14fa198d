"""Server side of a device process: connections, requests, snapshots.

Place 7 of 9 in the order of the data; run by: device process.
"""
