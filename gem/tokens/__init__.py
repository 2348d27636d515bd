"""Tokens: conversations to token ids, and episodes to training rows."""
