"""NVTX ranges and their GPU operations."""
