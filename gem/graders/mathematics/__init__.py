"""Mathematics as text: reading, evaluation and comparison of answers, for `gem.graders.math`."""
