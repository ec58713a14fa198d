"""Views of a running daemon: in the terminal, and as metrics for Prometheus; they change nothing."""
