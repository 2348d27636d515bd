"""Who else is told of a run: all are told, none can stop it, and each iteration is written once."""

import errno
import json
import shutil
import struct
from dataclasses import replace
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from gem.errors import BadArgument, MissingExtra
from gem.registry import Maker
from gem.rollout import EpisodeStore, Job, Runner
from gem.train.config import TrainConfig
from gem.train.learn.training import train
from gem.train.report import tensorboard
from gem.train.report.loggers import Log, figures_of, make_loggers, transcripts
from gem.train.report.run_folder import RunFolder
from gem.train.report.tensorboard import TensorBoard
from gem.train.report.watcher import Watcher, Watchers

QUICK = TrainConfig(
    env_kwargs={"max_number": 4, "max_turns": 3},
    width=16,
    layers=1,
    heads=2,
    episodes=80,
    batch=16,
    warmup_steps=2,
    warmup_batch=8,
    eval_episodes=8,
    save_every=2,
    eval_every=2,
    watch=2,
)
HOOKS = {name for name in vars(Watcher) if not name.startswith("_")}


class Lines(Log):
    """Writes moments as lines into a file of the run's folder: a log as somebody else might write it."""

    def open(self):
        self.file = self.folder.path / "lines.jsonl"
        return len(self.file.read_text().splitlines()) if self.file.exists() else 0

    def write(self, moment):
        success = moment.metrics and moment.metrics.success
        with self.file.open("a") as file:
            print(json.dumps([moment.iteration, moment.episodes, success, moment.played]), file=file)


class Full(Watcher):
    """Finds the disk full at the second iteration."""

    told: list = []  # noqa: RUF012  across instances: the run makes its own

    def iterated(self, metrics, config):
        self.told.append(metrics.iteration)
        if metrics.iteration == 2:
            raise OSError(errno.ENOSPC, "No space left on device")


class Warned(Watcher):
    def __init__(self):
        self.warnings = []

    def warned(self, text):
        if text.startswith("--log"):
            self.warnings.append(text)


def test_all_are_told_everything():
    told = []

    def noting(name):
        class Noting(Watcher):
            pass

        for hook in HOOKS:
            setattr(Noting, hook, lambda self, *args, hook=hook: told.append((name, hook, args)))
        return Noting()

    watchers = Watchers(noting("first"), {"other": noting("other")})
    for hook in HOOKS:
        getattr(watchers, hook)(1, 2)
    assert sorted(told) == sorted((name, hook, (1, 2)) for name in ("first", "other") for hook in HOOKS)


@pytest.mark.system
def test_one_that_fails_is_told_nothing_more_and_the_run_is_the_same(tmp_path):
    Full.told.clear()
    plain, watcher = replace(QUICK, out=tmp_path / "plain"), Warned()
    failing = replace(QUICK, out=tmp_path / "failing", log=(f"{__name__}:Full", "tensorboard"))
    train(plain)
    train(failing, watcher=watcher)
    assert Full.told == [1, 2]
    (said,) = watcher.warnings
    assert said.startswith(f"--log {__name__}:Full failed and is left out")
    assert "No space left" in said
    one, other = (torch.load(run.out / "checkpoint.pt", weights_only=True) for run in (plain, failing))
    assert one["iteration"] == other["iteration"] == 5
    assert all(torch.equal(one["model"][name], other["model"][name]) for name in one["model"])


def test_a_log_that_does_not_say_what_it_holds_is_told_so(tmp_path):
    class Silent(Lines):
        def open(self):
            return None

    with pytest.raises(BadArgument, match=r"open\(\) is None; accepted: the number of moments"):
        Silent().begun(SimpleNamespace(path=tmp_path, first_iteration=0), QUICK, [])
    watcher = Warned()
    Watchers(watcher, {"full": Full()}).iterated(SimpleNamespace(iteration=2), None)
    (said,) = watcher.warnings
    assert "No space left on device (test_loggers.py, line " in said


def test_what_the_first_one_raises_ends_the_run():
    class Stops(Watcher):
        def iterated(self, metrics, config):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Watchers(Stops(), {"other": Watcher()}).iterated(None, None)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tensorbord", "Did you mean 'tensorboard'"),
        ("nowhere_at_all:Log", "no module 'nowhere_at_all' is installed"),
        ("json:dumps", "accepted: a subclass of gem.train.Watcher"),
        ("gem.train.report.progress:Terminal", "must take no arguments"),
    ],
)
def test_what_is_no_logger_is_refused_before_anything_is_begun(tmp_path, name, said):
    with pytest.raises(BadArgument, match=said):
        train(replace(QUICK, out=tmp_path / "run", log=(name,)))
    assert not (tmp_path / "run").exists()


def test_a_package_that_is_not_there_is_said_at_once():
    try:
        import wandb  # noqa: F401
    except ImportError:
        with pytest.raises(MissingExtra, match=r"pip install .*\[log\]"):
            make_loggers(["wandb"])
    else:
        pytest.skip("wandb is installed")


class Stop(Watcher):
    """Ctrl-C at an iteration."""

    def __init__(self, iteration):
        self.iteration = iteration

    def iterated(self, metrics, config):
        if metrics.iteration == self.iteration:
            raise KeyboardInterrupt


LOGS = ("tensorboard", f"{__name__}:Lines")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    config = replace(QUICK, out=tmp_path_factory.mktemp("whole"), log=LOGS)
    train(config)
    return config


def decoded(data):
    """Fields of a protocol buffer by number, by its wire format alone."""
    found, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        field, wire = divmod(varint(), 8)
        if wire == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(wire) or varint()
            value = data[at : at + size]
            at += size
        found.setdefault(field, []).append(value)
    return found


def events(out):
    """What an event file says, without the clock: step, tag and value, or text."""
    data, at, found = (out / tensorboard.FOLDER / tensorboard.FILE).read_bytes(), 0, []
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        event = decoded(data[at + 12 : at + 12 + size])
        at += size + 16
        for summary in event.get(5, []):
            for value in map(decoded, decoded(summary).get(1, [])):
                tag = value[1][0].decode()
                if 2 in value:
                    found.append((event[2][0], tag, struct.unpack("<f", value[2][0])[0]))
                elif not tag.startswith("_hparams_"):
                    found.append((event[2][0], tag, decoded(value[8][0])[8][0].decode()))
    return [each for each in found if "cost/" not in each[1]]


@pytest.mark.system
@pytest.mark.parametrize("stop", [1, 2, 3, 4, 5])
def test_a_run_that_goes_on_is_logged_once(whole, tmp_path, stop):
    config = replace(whole, out=tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train(config, watcher=Stop(stop))
    train(config, resume=True)
    assert (config.out / "lines.jsonl").read_text().count("\n") == 6
    assert events(config.out) == events(whole.out)
    mine, theirs = ((run.out / "lines.jsonl").read_text() for run in (config, whole))

    def strip(text):
        return [json.loads(line)[:3] for line in text.splitlines()]

    assert strip(mine) == strip(theirs)


@pytest.mark.system
@pytest.mark.parametrize("left", [1, 700, 0.5, 0.9])
def test_a_torn_event_file_is_mended(whole, tmp_path, left):
    config = replace(whole, out=tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train(config, watcher=Stop(5))
    file = config.out / tensorboard.FOLDER / tensorboard.FILE
    data = file.read_bytes()
    file.write_bytes(data[: left if left >= 1 else int(left * len(data))])
    train(config, resume=True)
    assert events(config.out) == events(whole.out)


@pytest.mark.system
def test_who_is_told_first_when_a_run_goes_on_is_told_all(whole, tmp_path):
    config = replace(whole, out=tmp_path / "run", log=())
    with pytest.raises(KeyboardInterrupt):
        train(config, watcher=Stop(4))
    train(replace(config, log=LOGS), resume=True)
    assert events(config.out) == events(whole.out)


@pytest.mark.system
def test_scalars_stand_by_iteration_and_by_episodes(whole):
    history = RunFolder(whole.out).history()

    def single(value):
        return struct.unpack("<f", struct.pack("<f", value))[0]

    found = events(whole.out)
    assert [(s, v) for s, tag, v in found if tag == "train/success"] == [
        (m.iteration, single(m.success)) for m in history
    ]
    assert [(s, v) for s, tag, v in found if tag == "by_episodes/train/success"] == [
        (m.episodes, single(m.success)) for m in history
    ]
    assert not [tag for _, tag, _ in found if "value_error" in tag]  # NaN: there is no critic
    assert {tag for _, tag, _ in found if tag.startswith("figures/after/")}
    evaluations = RunFolder(whole.out).evaluated()
    assert [(s, v) for s, tag, v in found if tag == "heldout/reward"] == [
        (each.iteration, single(each.result.reward.mean)) for each in evaluations
    ]
    assert [s for s, tag, _ in found if tag == "by_episodes/heldout/reward"] == [0, 32, 64, 80]


@pytest.mark.system
def test_a_full_disk_costs_the_log_alone(tmp_path, monkeypatch):
    opened = TensorBoard.open

    def full(self):
        written = opened(self)
        self._file.close()
        self._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115  closed by the log
        return written

    monkeypatch.setattr(TensorBoard, "open", full)
    watcher = Warned()
    train(replace(QUICK, out=tmp_path, log=("tensorboard",)), watcher=watcher)
    (said,) = watcher.warnings
    assert "--log tensorboard failed" in said
    assert "No space left" in said
    assert (tmp_path / "summary.json").exists()


@pytest.mark.system
def test_replacing_a_run_removes_its_log(whole, tmp_path):
    shutil.copytree(whole.out, tmp_path / "run")
    RunFolder(tmp_path / "run").clear()
    assert not list((tmp_path / "run").glob("**/*tfevents*"))


def test_what_a_model_wrote_is_text(tmp_path):
    attack = "</code><script>alert(1)</script>\x1b[2J\r```\n# heading\u202e [a](javascript:alert(1))"
    from gem.agents.scripted import ScriptedAgent

    with (
        EpisodeStore(tmp_path / "watched.jsonl") as store,
        Runner(ScriptedAgent([attack] * 9), store=store) as runner,
    ):
        runner.play([Job(Maker("game:GuessTheNumber-v0-easy"), 1, "0", key="0-0")])
    ((_, text),) = transcripts(tmp_path / "watched.jsonl", 0)
    assert "\x1b" not in text
    assert "\r" not in text
    assert "\u202e" not in text
    stored = decoded(decoded(tensorboard._text("watched", text))[8][0])[8][0].decode()
    assert "<script>" in stored  # told as it is,
    assert all(
        line.startswith("    ") for line in stored.splitlines()
    )  # in lines that are code, each of them


def test_the_checksum_is_the_one_of_crc32c():
    (masked,) = struct.unpack("<I", tensorboard._checksum(b"123456789"))
    unmasked = (masked - 0xA282EAD8) & 0xFFFFFFFF
    assert (unmasked >> 17 | unmasked << 15) & 0xFFFFFFFF == 0xE3069283


def test_figures_that_are_none_are_left_out():
    values = {"a": 1, "b": float("nan"), "c": True, "d": {"e": 2.5, "f": float("inf"), "g": None}, "h": "x"}
    assert figures_of(values) == {"a": 1.0, "d/e": 2.5}


@pytest.mark.system
def test_tensorboard_reads_it(whole):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed (gem-gym[log])")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    found = EventAccumulator(str(whole.out / "tensorboard"), {"scalars": 0, "tensors": 0})
    found.Reload()
    history = RunFolder(whole.out).history()
    for name in ("success", "reward", "turns"):
        for tag, step in ((f"train/{name}", "iteration"), (f"by_episodes/train/{name}", "episodes")):
            read = [(event.step, event.value) for event in found.Scalars(tag)]
            told = [(getattr(m, step), getattr(m, name)) for m in history]
            assert read == [(at, pytest.approx(value)) for at, value in told]
    text = found.Tensors("watched/seed 0")
    assert [event.step for event in text] == [0, 2, 4, 5]
    assert b"secret whole number" in text[0].tensor_proto.string_val[0]
    assert found.SummaryMetadata("watched/seed 0").plugin_data.plugin_name == "text"
    content = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    hparams = HParamsPluginData.FromString(content).session_start_info.hparams
    assert hparams["batch"].number_value == 16
    assert hparams["algorithm"].string_value == "rebn"
    assert hparams["whiten"].bool_value
    assert json.loads(hparams["env_kwargs"].string_value) == QUICK.env_kwargs
