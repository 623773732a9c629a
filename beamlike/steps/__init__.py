"""Stateless steps on rows."""
