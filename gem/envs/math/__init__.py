"""Mathematics: generated problems, and data sets of problems."""
