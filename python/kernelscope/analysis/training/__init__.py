"""Answers for people who train: phases and micro-batches of a step."""
