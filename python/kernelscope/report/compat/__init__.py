"""Text and tables as the tools write them that kernelscope replaces."""
