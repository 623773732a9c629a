"""Behaviour of keyed state, timers and joins as data: YAML files of cases, played through the public API.

`python -m tests.cases FILE.yaml --runner stage|local|spark` prints a line for each case. Files of cases are trusted:
their scripts are Python.
"""
