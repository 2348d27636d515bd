"""Mathematics: problems that a program makes, and data sets of problems."""
