"""The local viewer: a server on this machine for a page in the browser about one trace."""
