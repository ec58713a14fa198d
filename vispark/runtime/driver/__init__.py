"""Driver's side of the runtime: sessions, connections to workers, plans in flight, recovery."""
