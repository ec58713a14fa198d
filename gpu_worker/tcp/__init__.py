"""The way to a session's device processes from other machines: TCP, TLS with a pinned certificate, and the secret."""
