"""The user's objects for building pipelines: pipelines, collections, groupings, side inputs and savepoints.

May import `local`, `spark`, `observe` and all below them.
"""
