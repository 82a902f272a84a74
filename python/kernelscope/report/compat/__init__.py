"""Text and tables in the formats of the tools that kernelscope replaces."""
