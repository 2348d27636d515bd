"""Questions about pictures: generated geometry and charts, and a data set."""
