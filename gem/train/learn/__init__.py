"""What learns: the policy, its losses and steps, and the loop around them."""
