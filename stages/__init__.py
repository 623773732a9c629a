"""Stages: operators over state that follow watermarks, as pure functions over columns. Imports `windowing` only."""
