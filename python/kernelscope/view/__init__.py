"""The local viewer: a server on this machine that answers a page in the browser about one trace."""
