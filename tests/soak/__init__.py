"""A long run on generated input (`make soak`): nothing grows, and every element is accounted for."""
