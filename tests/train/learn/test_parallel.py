"""Two processes that train one model take the steps that one would."""

import json
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from bpe_tokenizers import make_tokenizer
from model_folders import write_folder

from gem.errors import BadArgument
from gem.rollout import EpisodeStore
from gem.train.learn import parallel

FLAGS = [
    *("--env-kwargs", '{"max_number": 4, "max_turns": 3}', "--width=16", "--layers=1", "--heads=2"),
    *(
        "--episodes=64",
        "--batch=16",
        "--minibatch=8",
        "--group=4",
        "--warmup-steps=30",
        "--warmup-batch=8",
        "--warmup-lr=2e-2",
    ),
    *("--eval-episodes=8",),
]


def run(out, *more, processes, flags=FLAGS):
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [
        sys.executable,
        *(launch if processes > 1 else []),
        "-m",
        "gem",
        "train",
        *flags,
        "--out",
        str(out),
    ]
    done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = (json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines())
    return [(m["success"], m["tokens_sampled"], m["loss"], m["entropy"], m["kl"]) for m in lines]


@pytest.mark.parametrize(("processes", "count"), [(1, 4), (2, 7), (3, 7), (3, 2), (2, 0)])
def test_what_is_shared_out_is_gathered_in_its_order(processes, count, monkeypatch):
    monkeypatch.setattr(parallel, "world", lambda: processes)
    at = [0]
    monkeypatch.setattr(parallel, "rank", lambda: at[0])
    shares = []
    for at[0] in range(processes):
        shares.append(parallel.share(range(count)))

    def exchange(into, own):
        assert own == shares[at[0]]
        into[:] = shares

    monkeypatch.setattr(parallel.distributed, "all_gather_object", exchange)
    for at[0] in range(processes):
        assert parallel.gather(shares[at[0]]) == [*range(count)]


def test_what_the_first_process_makes_the_others_get(monkeypatch):
    monkeypatch.setattr(parallel, "world", lambda: 2)

    def exchange(into, own):
        into[:] = [["made"], []]

    monkeypatch.setattr(parallel.distributed, "all_gather_object", exchange)
    for rank, make in ((0, lambda: "made"), (1, lambda: pytest.fail("made twice"))):
        monkeypatch.setattr(parallel, "rank", lambda rank=rank: rank)
        assert parallel.from_first(make) == "made"


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["rebn", "ppo", "turn_grpo"])
def test_two_processes_have_the_losses_of_one(tmp_path, algorithm):
    one = run(tmp_path / "one", "--algorithm", algorithm, processes=1)
    two = run(tmp_path / "two", "--algorithm", algorithm, processes=2)
    assert len(one) == len(two) == 4
    for mine, theirs in zip(one, two, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-2, abs=1e-4)
    played = [file.read_text().count("\n") for file in (tmp_path / "two").glob("episodes*.jsonl")]
    assert len(played) == 2  # each process keeps what it played
    jobs = []
    for name in ("one", "two"):
        with EpisodeStore(tmp_path / name / "watched.jsonl", read_only=True) as store:
            jobs.append(sorted((episode.job, episode.policy_version) for episode in store))
    assert jobs[0] == jobs[1]  # the first process alone plays the watched seeds
    assert len(jobs[0]) == 5 * 4


@pytest.mark.slow
def test_two_processes_train_an_adapter_and_a_critic_as_one_does(tmp_path):
    """They share the passes of the reference, whose states they exchange, and of the critic."""
    pytest.importorskip("peft")
    texts = ["Guess the secret number from 1 to 10. higher lower user assistant boxed 0123456789"]
    folder = write_folder(tmp_path / "model", tokenizer=make_tokenizer(texts, 300))
    flags = (
        *("--model", str(folder), "--lora-rank=2", "--algorithm=ppo", "--kl=0.1", "--dtype=float32"),
        *("--episodes=32", "--batch=16", "--minibatch=8", "--max-turns=2", "--max-tokens=12"),
        *("--warmup-steps=2", "--warmup-batch=8", "--eval-episodes=4", "--watch=0", "--lr=1e-2"),
    )
    one, two = (run(tmp_path / str(count), processes=count, flags=flags) for count in (1, 2))
    assert len(one) == len(two) == 2
    for (success, tokens, *mine), (same, near, *theirs) in zip(one, two, strict=True):
        assert success == same
        assert abs(tokens - near) <= 12  # AdamW takes whole steps by rounded signs: an answer may differ
        assert mine == pytest.approx(theirs, rel=1e-2, abs=1e-4)
    divergence = one[1][-1]
    assert divergence > 1e-4  # not just rounding
    assert divergence == pytest.approx(two[1][-1], rel=0.3)


@pytest.fixture
def two_gpus(monkeypatch):
    """The second of two processes on a machine with two GPUs; returns what is asked of torch, in order."""
    asked = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: asked.append(device))
    monkeypatch.setattr(parallel.distributed, "init_process_group", lambda backend: asked.append(backend))
    return asked


def test_each_process_takes_its_own_gpu_before_it_joins_the_others(two_gpus):
    assert parallel.begin("cuda") == "cuda:1"
    assert two_gpus == ["cuda:1", "cpu:gloo,cuda:nccl"]


def test_processes_on_the_cpu_take_no_gpu(two_gpus):
    assert parallel.begin("cpu") == "cpu"
    assert two_gpus == ["gloo"]


def test_a_gpu_that_all_processes_would_share_is_refused(two_gpus, monkeypatch):
    with pytest.raises(BadArgument, match=r"device is 'cuda:0'; accepted for several processes: cuda"):
        parallel.begin("cuda:0")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(BadArgument, match=r"process 1 of this machine has no GPU: torch sees 1"):
        parallel.begin("cuda")
    assert two_gpus == []


def test_alone_everything_is_what_it_was():
    assert parallel.begin("cpu") == "cpu"
    assert (parallel.world(), parallel.rank()) == (1, 0)
    assert parallel.share([1, 2, 3]) == parallel.gather([1, 2, 3]) == [1, 2, 3]
    assert parallel.add_up_figures({"a": 1.0}) == {"a": 1.0}
