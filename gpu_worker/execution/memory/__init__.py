"""Memory of a pass: what its steps work in, tables that a session holds, copies to the tiers below and back.

Place 2 of 10 in ``gpu_worker.execution``; run by: device process.
"""
