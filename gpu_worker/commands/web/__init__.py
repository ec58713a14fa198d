"""Pages for a browser from a process of the user's own: who may read them, and where they are served."""
