"""Programming: gem's own problems and data sets, judged by tests in the sandbox."""
