"""What is kept of a run: its checkpoint. May import what `spark` may."""
