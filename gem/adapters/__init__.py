"""Adapters to other tools: export and import episodes in their formats, and use gem in their trainers.

`rows` writes JSON lines and `parquet` Parquet, `atif` Harbor's trajectories, `inspect_logs` the logs of
Inspect; `inspect_tasks` gives gem's environments to ``inspect eval``. A module that needs somebody's package
raises MissingExtra when it is imported without it.

`trl`, `verl`, `openrlhf`, `skyrl` and `tinker` give gem's episodes to other trainers. `prompts` writes tasks
into their data sets, and `engine` uses their inference engines: token ids in, token ids out.

A format cannot hold everything, so the episode's own record is stored with it (`gem.adapters.records`). Files
that gem wrote are read back as the same episodes.
"""
