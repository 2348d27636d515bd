"""The oracle: a comparison of the trainer's learn step with exact gradients.

`judge` plays all episodes of small environments (`SETTINGS`), and gives all their batches to the real learn
step of each algorithm (`CASES`). It reports whether the mean step is unbiased, scaled, or biased, and why.
`gem-gym oracle` prints its rows.
"""

from gem.train.oracle.cases import CASES, Case
from gem.train.oracle.envs import SETTINGS, Setting
from gem.train.oracle.exact import Exact, Listing
from gem.train.oracle.report import HEADS, Judge, Row, judge

__all__ = ["CASES", "HEADS", "SETTINGS", "Case", "Exact", "Judge", "Listing", "Row", "Setting", "judge"]
