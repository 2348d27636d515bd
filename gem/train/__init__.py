"""Training: batches, losses, policies, and one readable loop for REINFORCE, ReBN and GRPO."""

from gem.errors import missing_extra

try:
    import torch  # noqa: F401
except ImportError:
    raise missing_extra("training", "torch", "train") from None
