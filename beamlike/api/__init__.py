"""What users hold: a `Pipeline`, and `Collection`s that steps are called on.

May import `local`, `spark`, `observe` and all below them.
"""
