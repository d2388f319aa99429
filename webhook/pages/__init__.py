"""HTML pages and their plots: what typed reports look like in a browser; no HTTP."""
