"""Device memory over time, with its owners."""
