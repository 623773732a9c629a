"""Tests, and what they share: a model of the semantics, and Hypothesis strategies."""
