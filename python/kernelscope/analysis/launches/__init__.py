"""From a launch to its kernel: delays, queues, and what GPUs idle for."""
