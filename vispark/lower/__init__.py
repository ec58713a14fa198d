"""From the recorded plan to the protocol's: stages that are fused, launches, and the executable plan."""
