"""Operators, the calls of them and their stacks."""
