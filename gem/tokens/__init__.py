"""Tokens: messages to ids and the delta of a turn, and episodes to training rows."""
