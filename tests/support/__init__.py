"""Code that tests share: a naive model of the semantics, Hypothesis strategies, histories and helpers."""
