"""A long run of generated input: nothing grows, and every element is accounted for. `make soak`."""
