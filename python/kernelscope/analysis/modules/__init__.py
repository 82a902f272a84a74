"""Modules of the network, and their costs."""
