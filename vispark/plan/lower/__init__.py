"""Lowering of recorded plans to the protocol's: fused stages, launches, and executable plans."""
