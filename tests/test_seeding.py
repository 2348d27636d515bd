import copy
import itertools
import pickle
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem import seeding
from gem.errors import BadArgument

seeds = st.integers(min_value=0, max_value=2**63 - 1)
paths = st.lists(st.integers() | st.text(), max_size=4).map(tuple)


@given(seeds, paths)
def test_children_are_63_bit_integers_and_repeatable(seed, path):
    child = seeding.derive(seed, *path)
    assert 0 <= child < 2**63
    assert seeding.derive(seed, *path) == child


@given(seeds, paths, seeds, paths)
def test_different_paths_have_different_children(one, path, other, branch):
    if (one, path) != (other, branch):
        assert seeding.derive(one, *path) != seeding.derive(other, *branch)


def test_children_are_what_they_were():
    """Stored seeds and golden transcripts rest on these numbers."""
    assert seeding.derive(0) == 4761921975702974394
    assert seeding.derive(0, "env", 3) == 3538972930888216440
    assert seeding.stream(0, "world").getrandbits(64) == 16921824092582944995


def test_a_number_and_its_text_are_different_steps():
    assert seeding.derive(1, 2) != seeding.derive(1, "2")
    assert seeding.derive(1, "a", "b") != seeding.derive(1, "ab") != seeding.derive(1, "a b")


def test_numpy_integers_are_the_numbers_they_are():
    numpy = pytest.importorskip("numpy")
    for kind in (numpy.int32, numpy.int64, numpy.uint64):
        assert seeding.derive(kind(7), "env", kind(3)) == seeding.derive(7, "env", 3)
    assert seeding.derive(1, numpy.str_("env")) == seeding.derive(1, "env")
    assert seeding.check(numpy.uint64(2**63)) == 2**63


def test_a_fraction_is_no_step():
    with pytest.raises(TypeError):
        seeding.derive(1, 0.5)


@pytest.mark.parametrize("seed", [-1, 0.5, None, "7", True, [7]])
def test_what_is_no_seed_is_refused(seed):
    with pytest.raises(BadArgument, match="non-negative integer"):
        seeding.check(seed)


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_children_are_the_same_in_every_process(hash_seed):
    code = "from gem import seeding; print(seeding.derive(5, 'a', 1), seeding.stream(5).random())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(seeding.derive(5, "a", 1)), str(seeding.stream(5).random())]


@given(seeds)
def test_a_stream_is_the_stdlib_generator_in_all_its_methods(seed):
    stream = seeding.stream(seed)
    assert isinstance(stream, random.Random)
    assert 0 <= stream.random() < 1
    assert 3 <= stream.randint(3, 9) <= 9
    assert sorted(stream.sample(range(10), 10)) == list(range(10))
    assert len(stream.randbytes(5)) == 5
    for bits in (1, 63, 64, 65, 200):
        assert 0 <= stream.getrandbits(bits) < 2**bits


@given(seeds)
def test_a_copied_or_pickled_stream_goes_on(seed):
    stream = seeding.stream(seed)
    stream.gauss(0, 1)
    copies = [copy.deepcopy(stream), pickle.loads(pickle.dumps(stream)), seeding.stream(0)]
    copies[2].setstate(stream.getstate())
    said = [stream.gauss(0, 1), stream.getrandbits(100)]
    for twin in copies:
        assert [twin.gauss(0, 1), twin.getrandbits(100)] == said


def test_a_stream_is_splitmix64():
    """The first numbers of the reference implementation (Vigna, splitmix64.c) from the state 1234567."""
    stream = seeding.Stream(1234567)
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [stream.getrandbits(64) for _ in expected] == expected


def test_a_stream_takes_the_seeds_of_the_stdlib_generator():
    seeds = ["abc", b"abc", bytearray(b"abc"), 1.5, -1, 2**70]
    firsts = [seeding.Stream(seed).getrandbits(64) for seed in seeds]
    assert firsts == [seeding.Stream(seed).getrandbits(64) for seed in seeds]
    assert len(set(firsts)) == len(seeds)
    assert seeding.Stream(True).random() == seeding.Stream(1).random()
    with pytest.raises(TypeError):
        seeding.Stream([1])


def test_many_bits_are_the_words_in_a_row_and_take_as_long():
    """With a copy of all bits before for each word, this took a minute and a half."""
    count = 125_000
    many, words = seeding.stream(1), seeding.stream(1)
    expected = [words.getrandbits(0), *(words.getrandbits(64) for _ in range(count))]
    assert many.randbytes(8 * count) == b"".join(word.to_bytes(8, "little") for word in expected[:0:-1])
    assert many.getstate() == words.getstate()
    assert many.getrandbits(70) == words.getrandbits(6) << 64 | words.getrandbits(64)
    for bits in (1023, 1024):
        expected = [words.getrandbits(bits % 64), *(words.getrandbits(64) for _ in range(bits // 64))]
        assert many.getrandbits(bits) == sum(word << 64 * place for place, word in enumerate(expected[::-1]))


def test_a_stream_is_even():
    """Chi-squared over 16 values: 15 degrees of freedom, far below the 1-in-a-million 55."""
    stream, n = seeding.stream(1), 16_000
    counts = [0] * 16
    for _ in range(n):
        counts[stream.randrange(16)] += 1
    assert sum((count - n / 16) ** 2 / (n / 16) for count in counts) < 55


def test_neighbouring_seeds_have_unlike_streams():
    firsts = [seeding.stream(seed, "world").getrandbits(64) for seed in range(1000)]
    assert len(set(firsts)) == 1000
    ones = sum((a ^ b).bit_count() for a, b in itertools.pairwise(firsts))
    assert abs(ones / 999 - 32) < 1  # half of the bits change


def test_nothing_touches_the_global_generator():
    before = random.getstate()
    seeding.stream(1).random()
    seeding.fresh()
    assert random.getstate() == before
    assert seeding.fresh() != seeding.fresh()
