"""Helpers that know nothing of vispark."""
