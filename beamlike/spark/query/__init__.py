"""A plan as one streaming query."""
