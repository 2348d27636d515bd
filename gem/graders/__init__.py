"""Graders: functions that score an answer against a reference."""
