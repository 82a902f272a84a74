"""Who held device memory, when, and for what."""
