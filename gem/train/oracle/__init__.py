"""The oracle: what the real learn step estimates, compared with exact gradients."""
