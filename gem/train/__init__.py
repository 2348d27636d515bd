"""Training: batches, losses, policies, and one readable loop for REINFORCE, ReBN and GRPO."""

from importlib.util import find_spec

from gem.errors import missing_extra


def check_torch(what: str = "training") -> None:
    """Check that PyTorch is here, without loading it, which takes seconds.

    Raises:
        MissingExtra: when it is not.
    """
    if find_spec("torch") is None:
        raise missing_extra(what, "torch", "train")
