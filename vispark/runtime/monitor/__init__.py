"""Dashboard of an application, in its driver: workers, plans by line, what is held; it changes nothing."""
