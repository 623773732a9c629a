"""The documentation site, built from docs/ by `make docs`.

`llms.txt` is its navigation, and the pages of docs/ are its sources.
"""
