"""Mistakes sown into the translator one at a time, and the tests that must find each of them.

``python -m tests.property.faults --jobs 2`` sows all of them, each in a copy of its own, and writes which test caught
which. A mistake that no test finds says that the tests are too weak.
"""
