"""From a launch to its kernel: delays, queues, and causes of idle time."""
