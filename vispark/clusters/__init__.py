"""Clusters on which programs run: one module a platform, each recorded before it is created."""
