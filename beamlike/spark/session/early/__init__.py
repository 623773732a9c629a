"""Goes onto the module path of Spark's Python workers, for the `sitecustomize` in it.

May import what `session` may.
"""
