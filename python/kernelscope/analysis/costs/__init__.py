"""Costs of operators, achieved performance, and the limits of the GPU."""
