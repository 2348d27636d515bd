"""Agents: who acts. An agent is anything that keeps `gem.record.Agent`."""
