"""The operating system as processes see it: paths, peers, logs, waiting, crash records, starting a daemon."""
