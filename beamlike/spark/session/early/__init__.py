"""A folder that is put on the module path of Spark's Python workers, so that they import its `sitecustomize`.

May import what `session` may.
"""
