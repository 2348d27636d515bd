"""Games for several seats, and one seat of them as an environment; `gem.seats` has the public names."""
