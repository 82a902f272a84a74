"""Operators, their calls and call stacks."""
