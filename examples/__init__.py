"""The flagship example with its input, its answer by other means and a demo; panes side by side; a leaderboard."""
