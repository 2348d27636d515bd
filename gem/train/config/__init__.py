"""The settings of a training run: their fields, their checks, and the files that hold them."""

from gem.train.config.train_config import TrainConfig

__all__ = ["TrainConfig"]
