"""Multi-agent games, and single seats of them as environments; `gem.seats` has the public names."""
