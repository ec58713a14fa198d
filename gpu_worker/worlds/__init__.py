"""Worlds: device processes of a session that exchange ghost cells with each other, by one of several exchanges."""
