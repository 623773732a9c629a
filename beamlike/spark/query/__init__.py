"""The streaming query of a plan. May import what `spark` may."""
