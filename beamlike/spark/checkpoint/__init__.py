"""What is kept of a run: its checkpoint."""
