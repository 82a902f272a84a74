"""Time of each step by category."""
