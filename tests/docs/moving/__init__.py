"""Animated pictures of runs in docs/pictures, as SVG without a script. Without motion they show the last state."""
