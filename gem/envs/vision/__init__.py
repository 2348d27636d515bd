"""Questions about pictures: geometry and charts that a program draws, and a data set."""
