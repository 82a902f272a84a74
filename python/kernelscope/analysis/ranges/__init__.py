"""NVTX ranges and the GPU work in them."""
