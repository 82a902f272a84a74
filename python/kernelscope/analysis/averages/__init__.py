"""The tables of torch.profiler, from the file alone."""
