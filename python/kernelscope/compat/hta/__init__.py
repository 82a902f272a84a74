"""The tables of HolisticTraceAnalysis, in its own rounding."""
