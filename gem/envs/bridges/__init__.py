"""Other people's environments: reasoning-gym, Gymnasium, TextArena, PettingZoo."""
