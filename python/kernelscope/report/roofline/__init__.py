"""The roofline: its answers, its picture and its text."""
