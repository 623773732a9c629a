"""The flagship example: its input, its pipeline, its answer by other means, and a demo that shows them."""
