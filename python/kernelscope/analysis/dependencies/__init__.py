"""What each event waited for: the critical path."""
