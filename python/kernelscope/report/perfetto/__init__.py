"""Export to JSON for Perfetto and chrome://tracing."""
