"""Training: batches, losses, policies, and one readable loop for REINFORCE, ReBN and GRPO."""
