"""Bridges to environments elsewhere: reasoning-gym, Gymnasium, TextArena, PettingZoo, and servers."""
