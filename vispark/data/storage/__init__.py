"""Stores of files: this machine's, object stores and whatever else has URLs, with ranges to read and atomic writes."""
