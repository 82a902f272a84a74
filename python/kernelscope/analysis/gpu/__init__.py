"""Activity of the GPUs as a whole."""
