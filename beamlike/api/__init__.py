"""The objects that users build pipelines from: pipelines, collections, groupings, side inputs and savepoints.

May import `local`, `spark`, `observe` and all below them.
"""
