"""What is kept of a run: checkpoints, savepoints and temporary folders."""
