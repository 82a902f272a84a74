"""Comparison of two aligned traces, and the causes of their difference."""
