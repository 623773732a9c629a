"""Examples, each with its input and its answer by other means.

The flagship and a demo of it; panes side by side; a leaderboard; silent sensors, abandoned carts and a throttle, which
have state and timers of their own.
"""
