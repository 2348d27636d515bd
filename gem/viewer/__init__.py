"""The viewer: web pages of episodes and training runs, served on this machine only, or written as files."""
