"""Clusters of others: files that bring the worker to each platform, and clusters of EMR."""
