"""How far everything is: the watermarks of splits, sources and stages."""
