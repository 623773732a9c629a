"""A Beam pipeline as a plan, which the runners of this engine execute. May import what `beam` may."""
