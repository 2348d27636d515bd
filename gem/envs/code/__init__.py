"""Programming: problems of our own and data sets, judged by tests in the sandbox."""
