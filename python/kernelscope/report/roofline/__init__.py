"""The roofline: its data, its plot and its text."""
