"""Tests, and their shared code: a model of the semantics, and Hypothesis strategies."""
