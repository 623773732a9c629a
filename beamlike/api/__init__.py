"""What users hold: a `Pipeline`, and `Collection`s that steps are called on."""
