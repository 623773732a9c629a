"""Pipelines and their parts from text."""
