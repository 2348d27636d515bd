import pytest
from awkward_episodes import awkward, echoed, with_tools

from gem import codec
from gem.errors import BadArgument, MissingData

pa = pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'gem-gym[data]'")
from pyarrow import parquet

from gem.adapters.parquet import EPISODES, read_parquet, write_parquet


def test_episodes_come_back_equal(tmp_path):
    path = tmp_path / "out.parquet"
    assert write_parquet(awkward(), path) == 6
    back = [read() for read in read_parquet(path)]
    assert [codec.encode(episode) for episode in back] == [codec.encode(episode) for episode in awkward()]
    assert [episode.run for episode in back] == [episode.run for episode in awkward()]


def test_the_columns_are_a_table(tmp_path):
    path = tmp_path / "out.parquet"
    write_parquet(awkward(), path)
    table = parquet.read_table(path)
    assert table.schema.equals(EPISODES)
    columns = table.to_pydict()
    assert columns["job"] == ["tools", "seats", "pictures", "branch", "broken", "echo0"]
    assert columns["reward"][4] is None  # no verdict
    assert columns["seed"][2] is None  # beyond 64 bits; its record has it
    assert columns["messages"][0][0] == {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize("tokens", [True, False])
def test_turns_are_a_table(tmp_path, tokens):
    path = tmp_path / "out.parquet"
    count = sum(len(episode.turns) for episode in awkward())
    assert write_parquet(awkward(), path, "turn", tokens=tokens) == count
    columns = parquet.read_table(path).to_pydict()
    assert len(columns["reward"]) == count
    if tokens:
        assert columns["token_ids"][:2] == [[5, 6], [5, 6]]
    else:
        assert "token_ids" not in columns
    with pytest.raises(BadArgument, match="holds no episodes"):
        list(read_parquet(path))


def test_others_read_it(tmp_path):
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "out.parquet"
    write_parquet([echoed(seed) for seed in range(3)], path)
    frame = pandas.read_parquet(path)
    assert list(frame.seed) == [0, 1, 2]
    assert frame.reward.mean() == pytest.approx(2 / 3)


def test_a_store_is_streamed(tmp_path, monkeypatch):
    monkeypatch.setattr("gem.adapters.parquet.AT_ONCE", 2)
    path = tmp_path / "out.parquet"
    assert write_parquet((echoed(seed) for seed in range(5)), path) == 5
    assert parquet.ParquetFile(path).num_row_groups == 3
    assert [read().seed for read in read_parquet(path)] == list(range(5))


def test_what_is_no_such_file_is_refused(tmp_path):
    (tmp_path / "text.parquet").write_text("PAR1 it is not")
    with pytest.raises(BadArgument, match="not a Parquet file"):
        list(read_parquet(tmp_path / "text.parquet"))
    with pytest.raises(MissingData):
        list(read_parquet(tmp_path / "nothing.parquet"))
    table = pa.table({"episode": ["{}", None], "settings": ["x", "y"]})
    parquet.write_table(table, tmp_path / "other.parquet")
    for read in read_parquet(tmp_path / "other.parquet"):
        with pytest.raises(BadArgument):
            read()
    with pytest.raises(BadArgument, match="already exists"):
        write_parquet([with_tools()], tmp_path / "other.parquet")
