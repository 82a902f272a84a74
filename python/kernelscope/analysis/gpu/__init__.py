"""What the GPUs did, as a whole."""
