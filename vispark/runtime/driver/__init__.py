"""The driver: sessions, connections to workers, plans in flight, recovery."""
