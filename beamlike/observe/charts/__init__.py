"""Charts of a run. May import what `observe` may."""
