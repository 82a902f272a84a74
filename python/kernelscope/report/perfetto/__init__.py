"""Export to JSON that Perfetto and chrome://tracing open."""
