"""What is played: the environments of a run, their shares, opponents, demonstrations and held-out tasks."""
