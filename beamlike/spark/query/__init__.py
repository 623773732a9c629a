"""A plan as one streaming query. May import what `spark` may."""
