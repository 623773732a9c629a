"""The pictures of a run."""
