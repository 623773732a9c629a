"""Pipelines and their parts from text. May import `api` and all below it."""
