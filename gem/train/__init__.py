"""Training: batches, losses, policies, and one readable loop for REINFORCE, ReBN and GRPO."""

from importlib.util import find_spec

from gem.errors import missing_extra

if find_spec("torch") is None:  # looked for, not loaded: that takes seconds
    raise missing_extra("training", "torch", "train")
