"""Questions and answers: facts of the built-in encyclopedia, data sets, and logic."""
