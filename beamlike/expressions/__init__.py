"""What users write within steps: expressions on rows, how they are read, and how they are told in words.

May import `rows`, `system` and all below them.
"""
