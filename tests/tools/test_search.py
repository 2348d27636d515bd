"""Search engines: what they find, in which order, and how they fail."""

import hashlib
import http.server
import json
import multiprocessing
import os
import pickle
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from random import Random

import msgspec
import numpy as np
import pytest

from gem.errors import BadArgument, MissingData
from gem.tools.search import Document, Hit, SearchFailed, open_engine
from gem.tools.search.base import best_passage, plain, words
from gem.tools.search.corpus import contents_of, documents, passages, title_and_text
from gem.tools.search.dense import DenseIndex, HybridIndex
from gem.tools.search.remote import GoogleEngine, RetrieveEngine, SerpApiEngine

HOSTILE = [
    "",
    "   ",
    "AND OR NOT",
    'title:"x AND [a TO *]',
    "a" * 100_000,
    "\udc80 \0",
    "(((((",
    "*",
    "x " * 5000,
]


def ids(hits):
    return [hit.id for hit in hits]


def encode(texts):
    """Count hashed groups of three letters: a sentence encoder that needs no model."""
    rows = np.zeros((len(texts), 256))
    for row, text in zip(rows, texts, strict=True):
        for word in words(text):
            for at in range(len(word) + 1):
                row[hashlib.sha256(f" {word} "[at : at + 3].encode()).digest()[0]] += 1
    return rows


# -- documents


def test_a_corpus_in_search_r1_s_layout_and_in_plain_fields(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    rows = [{"id": 7, "contents": '"Oslo"\nCapital of Norway.'}, {"contents": "No title here."}]
    rows.append({"_id": "x", "title": "Bergen", "text": "A town in the rain."})
    corpus.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    assert list(documents(corpus)) == [
        Document("7", "Oslo", "Capital of Norway."),
        Document("1", "", "No title here."),
        Document("x", "Bergen", "A town in the rain."),
    ]
    for title, text in [("Oslo", "a\nb"), ("", "a\nb"), ('say "x"', "t")]:
        assert title_and_text(contents_of(title, text)) == (title, text)


def test_a_folder_in_the_order_of_its_paths_with_long_files_in_passages(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden/no.txt").write_text("hidden")
    (tmp_path / "b/two.md").write_text("second")
    (tmp_path / "one.txt").write_bytes(b"caf\xe9 " + b"long words " * 300)
    (tmp_path / "image.png").write_bytes(b"png")
    found = list(documents(tmp_path))
    assert ids(found) == ["b/two.md", "one.txt", "one.txt#2"]
    assert found[0] == Document("b/two.md", "two", "second")
    assert all(len(document.text) <= 2000 for document in found)


def test_passages_lose_no_word():
    text = "one two\n\nthree " + "word " * 1000 + "x" * 5000
    pieces = passages(text, 100)
    assert max(map(len, pieces)) <= 100
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert passages(" \n ") == []
    assert best_passage(["about cats", "cats and dogs", "dogs, cats"], "Dogs cats") == "cats and dogs"


@pytest.mark.parametrize("line", ["{", "[1]", '{"id": 1}', '{"contents": 3}', "3"])
def test_a_line_that_is_no_document_is_named(tmp_path, line):
    corpus = tmp_path / "c.jsonl"
    corpus.write_text('{"contents": "fine"}\n' + line)
    with pytest.raises(BadArgument, match="line 2 of"):
        list(documents(corpus))


def test_what_cannot_be_indexed_is_refused(tmp_path):
    with pytest.raises(MissingData, match="no-such"):
        open_engine(tmp_path / "no-such")
    with pytest.raises(MissingData, match="holds no"):
        open_engine(tmp_path)
    (tmp_path / "x.csv").write_text("a,b")
    with pytest.raises(BadArgument, match=r"x\.csv cannot be indexed"):
        open_engine(tmp_path / "x.csv")


def test_queries_are_words():
    assert words('NOT title:Foo AND "foo bar"') == ["not", "title", "foo", "and", "bar"]
    assert len(words(" ".join(map(str, range(1000))))) == 64
    assert plain(" a\n\0b \udc80") == "a b ?"


# -- full text


@pytest.fixture(scope="module")
def world():
    pytest.importorskip("tantivy")
    return open_engine("world")


def test_the_built_in_world_is_found_by_title_by_text_and_by_stems(world):
    assert len(world) == 235
    assert ids(world.search("Galileo", 1)) == ["Galileo"]
    assert "Amazon River" in ids(world.search("rainforests of the Amazon", 2))
    assert world.search("zzzz qqqq") == []
    assert len(world.search("the", 100)) == 100


@pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
def test_no_query_is_too_much(world, query):
    assert all(isinstance(hit, Hit) for hit in world.search(query))


@pytest.mark.parametrize("topk", [0, -1, 101, True, "3", 2.0])
def test_topk_has_limits(world, topk):
    with pytest.raises(BadArgument, match="1 to 100"):
        world.search("x", topk)


def test_equals_come_in_the_order_of_the_corpus_however_many_there_are():
    pytest.importorskip("tantivy")
    same = [Document(f"d{n}", "", "the very same words") for n in range(3000)]
    engine = open_engine_over([*same, Document("best", "", "same same same")])
    assert ids(engine.search("same", 4)) == ["best", "d0", "d1", "d2"]


def open_engine_over(found):
    from gem.tools.search.full_text import FullTextIndex

    return FullTextIndex(found)


def asked(engine):
    return engine.search("river of the largest rainforest", 10)


def test_frequent_words_change_the_order_as_much_as_if_all_documents_were_looked_at():
    from gem.tools.search.full_text import FullTextIndex, _rank

    rng = Random(0)
    vocabulary = [f"w{n}" for n in range(100)]
    often = range(1, 101)  # a third of the words is in more than a tenth of the texts
    texts = [  # a word repeated in a short text beats a slightly rarer one in a long text
        " ".join(rng.choices(vocabulary, often, k=rng.randint(0, 15)) + rng.choices(vocabulary, often) * 5)
        for _ in range(1000)
    ]
    engine = FullTextIndex([Document(str(n), "", text) for n, text in enumerate(texts)])
    index = engine._open()
    for _ in range(100):
        asked = rng.sample(vocabulary, rng.randint(1, 4))
        all_of_them = index.parse_query(" ".join(asked), ["body"])
        best = _rank(index.searcher(), all_of_them, 5)
        assert [(hit.score, hit.id) for hit in engine.search(" ".join(asked), 5)] == [
            (score, document.get_first("id")) for score, document in best
        ]


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_pickled_forked_and_asked_by_many_threads_the_answer_is_the_same(world):
    wanted = asked(world)
    assert len(pickle.dumps(world)) < 300
    assert asked(pickle.loads(pickle.dumps(world))) == wanted
    with ThreadPoolExecutor(8) as pool:
        assert all(found == wanted for found in pool.map(asked, [world] * 64))
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if not child:
        try:
            sender.send(asked(world))
        finally:
            os._exit(0)
    assert receiver.poll(30)
    assert receiver.recv() == wanted
    os.waitpid(child, 0)


def test_an_index_is_kept_in_its_folder_until_the_source_changes(tmp_path):
    pytest.importorskip("tantivy")
    corpus, home = tmp_path / "c.jsonl", tmp_path / "index"
    corpus.write_text('{"id": "a", "contents": "apples"}\n')
    engine = open_engine(corpus, index_dir=home)
    assert ids(engine.search("apple")) == ["a"]
    kept = {file.name: file.stat().st_mtime_ns for file in home.iterdir()}
    assert ids(open_engine(corpus, index_dir=home).search("apple")) == ["a"]
    assert {file.name: file.stat().st_mtime_ns for file in home.iterdir()} == kept
    corpus.write_text('{"id": "a", "contents": "apples"}\n{"id": "b", "contents": "an apple a day"}\n')
    assert set(ids(open_engine(corpus, index_dir=home).search("apple"))) == {"a", "b"}
    assert ids(engine.search("apple")) == ["a"]  # who has the old one open goes on with it
    assert sorted(os.listdir(tmp_path)) == ["c.jsonl", "index"]


def test_a_folder_of_others_is_not_overwritten(tmp_path):
    pytest.importorskip("tantivy")
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(BadArgument, match="not an index of gem"):
        open_engine("world", index_dir=tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


# -- dense and hybrid

FRUIT = [
    Document("1", "Apple", "grows on trees"),
    Document("2", "Banana", "is yellow"),
    Document("3", "Apple pie", "is baked"),
    Document("4", "Banana", "is yellow"),
]


def test_dense_ranks_by_nearness_and_equals_by_place():
    engine = DenseIndex(FRUIT, encode)
    assert ids(engine.search("appel", 2)) in (["1", "3"], ["3", "1"])
    hits = engine.search("yellow banana", 2)
    assert ids(hits) == ["2", "4"]
    assert hits[0].score == hits[1].score
    assert len(engine.search("x", 100)) == 4
    assert engine.search("  ") == []
    assert pickle.loads(pickle.dumps(engine)).search("yellow banana", 4) == engine.search("yellow banana", 4)


@pytest.mark.parametrize("vectors", [[1.0, 2.0], [[1.0]], [[np.nan]] * 4])
def test_an_encoder_gives_a_row_of_numbers_per_text(vectors):
    with pytest.raises(BadArgument, match="encoder"):
        DenseIndex(FRUIT, lambda texts: vectors)


def test_hybrid_prefers_what_both_found(world):
    dense = DenseIndex("world", encode)
    both = HybridIndex([world, dense])
    query = "astronomer with a telescop"  # the misspelt word is the dense index's to find
    found = both.search(query, 5)
    assert found == both.search(query, 5)
    assert found[0].score == max(hit.score for hit in found) > 1 / 61
    assert {hit.id for hit in found} & set(ids(dense.search(query, 5)))
    with pytest.raises(BadArgument, match="two or more"):
        HybridIndex([world])


# -- ZIM

ANTEATER = (
    f"<p>It eats ants.</p>{'<p>tall grass</p>' * 300}"
    "<p>Its <b>tongue</b> &amp; snout are long<sup>[1]</sup>.</p>"
)


@pytest.fixture(scope="module")
def zim(tmp_path_factory):
    pytest.importorskip("libzim")
    from libzim.writer import Creator, Hint, Item, StringProvider

    class Article(Item):
        def __init__(self, path, title, html):
            super().__init__()
            self.path, self.title, self.html = path, title, html

        def get_path(self):
            return self.path

        def get_title(self):
            return self.title

        def get_mimetype(self):
            return "text/html"

        def get_contentprovider(self):
            return StringProvider(self.html)

        def get_hints(self):
            return {Hint.FRONT_ARTICLE: True}

    def write(path, index):
        with Creator(str(path)).config_indexing(index, "en") as creator:
            creator.set_mainpath("A")
            for name, title, body in [
                ("A", "Anteater", ANTEATER),
                ("B", "Bee", "<script>tongue()</script><p>It makes honey.</p>"),
                ("C", "Cat", "<p>It drinks milk with its tongue.</p>"),
            ]:  # fmt: skip
                creator.add_item(Article(name, title, f"<html><head><title>t</title></head><body>{body}"))
            for name in ("Title", "Language", "Creator", "Publisher", "Date", "Description", "Name"):
                creator.add_metadata(name, "eng" if name == "Language" else "2026-01-01")
        return path

    folder = tmp_path_factory.mktemp("zim")
    return write(folder / "with.zim", True), write(folder / "without.zim", False)


def test_a_zim_file_is_searched_by_its_own_index(zim):
    engine = open_engine(zim[0])
    hits = engine.search("tongue")
    assert set(ids(hits)) == {"A", "C"}
    anteater = next(hit for hit in hits if hit.id == "A")
    assert anteater.title == "Anteater"
    assert "Its tongue & snout are long." in anteater.text  # of a long page the passage that fits
    assert "eats ants" not in anteater.text
    assert engine.search("nothing of the kindx zzz") == []
    for query in HOSTILE:
        engine.search(query)
    again = pickle.loads(pickle.dumps(engine))
    with ThreadPoolExecutor(4) as pool:
        assert all(found == hits for found in pool.map(lambda _: again.search("tongue"), range(16)))


def test_files_that_cannot_be_searched_are_refused(zim, tmp_path):
    with pytest.raises(BadArgument, match="no full-text index"):
        open_engine(zim[1])
    (tmp_path / "x.zim").write_text("no zim")
    with pytest.raises(BadArgument, match="not a ZIM file"):
        open_engine(tmp_path / "x.zim")
    with pytest.raises(MissingData, match=r"there is no file .*y\.zim"):
        open_engine(tmp_path / "y.zim")


def test_pages_are_read_as_a_reader_sees_them():
    from gem.tools.search.zim import text_of

    page = "<head><title>x</title></head><h1>A</h1>one<br/>two<script>if (a < b) {}</script><p>three <i>four"
    assert re.split(r"\n+", text_of(page)) == ["A", "one", "two", "three four"]
    assert text_of("<script><script>" * 1000 + "x") == ""


# -- services


@contextmanager
def service(answer):
    """Answer every request by answer(request) -> (status, body); yields where, and the requests."""
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen.append((self.path, self.headers, body))
            status, said = answer(len(seen), self.path, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            with suppress(ConnectionError):
                self.wfile.write(said)

        do_POST = do_GET

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()


FAST = {"retries": 2, "backoff_s": 0.0, "timeout_s": 10.0}
ONE = {"result": [[{"document": {"id": "9", "contents": '"Oslo"\nA city.'}, "score": 2.5}]]}


@pytest.fixture(autouse=True)
def httpx():
    pytest.importorskip("httpx")


def test_retrieve_is_asked_in_json_as_search_r1_does():
    with service(lambda n, path, body: (200, json.dumps(ONE).encode())) as (url, seen):
        engine = RetrieveEngine(url, **FAST)
        assert engine.search(" capital\nof Norway ", 1) == [Hit("9", "Oslo", "A city.", 2.5)]
        assert pickle.loads(pickle.dumps(engine)).search("x", 1) == engine.search("x", 1)
        engine.close()
        assert engine.search("after close", 1)
        engine.close()
    path, headers, body = seen[0]
    assert (path, headers["Content-Type"]) == ("/retrieve", "application/json")
    assert json.loads(body) == {"queries": ["capital of Norway"], "topk": 1, "return_scores": True}


def test_a_server_of_msgpack_is_found_out_once():
    def upstream(n, path, body):
        if body[:1] == b"{":
            return 500, b"Internal Server Error"
        return 200, msgspec.msgpack.encode({"result": [{"document": {"contents": "just text"}}] * 5})

    with service(upstream) as (url, seen):
        engine = RetrieveEngine(f"{url}/search", **FAST)
        assert engine.search("a", 2) == [Hit("0", "", "just text", 1.0), Hit("1", "", "just text", 0.5)]
        engine.search("b", 2)
        engine.close()
    assert [body[:1] == b"{" for _, _, body in seen] == [True, False, False]
    assert seen[0][0] == "/search"
    assert msgspec.msgpack.decode(seen[1][2]) == {"query": "a", "topk": 2, "return_scores": True}


def test_a_busy_server_is_asked_again():
    with service(lambda n, path, body: (503, b"busy") if n < 3 else (200, json.dumps(ONE).encode())) as (
        url,
        seen,
    ):
        engine = RetrieveEngine(url, **FAST)
        assert ids(engine.search("a")) == ["9"]
        engine.close()
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("status", "body", "tries"),
    [(503, b"busy", 3), (404, b"no", 1), (200, b"no json", 1), (200, b'{"result": 3}', 1), (200, b"[[[", 1),
     (200, b'{"result": [[{"document": {"id": 1}}]]}', 1)],
)  # fmt: skip
def test_a_server_that_gives_nothing_usable_is_a_failure(status, body, tries):
    with service(lambda n, path, said: (status, body)) as (url, seen):
        engine = RetrieveEngine(url, wire="json", **FAST)
        with pytest.raises(SearchFailed, match=re.escape(url)):
            engine.search("a")
        engine.close()
    assert len(seen) == tries


def test_a_dead_server_and_a_silent_one_are_failures():
    with service(lambda n, path, body: (200, b"")) as (url, _):
        pass
    with pytest.raises(SearchFailed, match=r"did not answer: .*tried 3 times"):
        RetrieveEngine(url, **FAST).search("a")
    done = threading.Event()
    with service(lambda n, path, body: (200, b"{}" if done.wait(30) else b"")) as (url, _):
        engine = RetrieveEngine(url, timeout_s=0.2, retries=0)
        with pytest.raises(SearchFailed, match="ReadTimeout"):
            engine.search("a")
        done.set()
        engine.close()


@pytest.mark.parametrize("url", ["ftp://x/y", "http://", "https:///retrieve", "x"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(BadArgument):
        RetrieveEngine(url)


RESULT = {"title": "Oslo", "link": "http://oslo.no", "snippet": "A city."}


@pytest.mark.parametrize(
    ("cls", "field", "keys", "asked"),
    [
        (SerpApiEngine, "organic_results", {"SERPAPI_API_KEY": "s3cret"},
         "engine=google&q=a+b&num=20&api_key=s3cret"),
        (GoogleEngine, "items", {"GOOGLE_API_KEY": "s3cret", "GOOGLE_CSE_ID": "cx"},
         "key=s3cret&cx=cx&q=a+b&num=10"),
    ],
)  # fmt: skip
def test_providers(monkeypatch, cls, field, keys, asked):
    for name in keys:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(BadArgument, match=next(iter(keys))):
        cls()
    for name, value in keys.items():
        monkeypatch.setenv(name, value)

    def answer(n, path, body):
        if "refuse" in path:
            return 403, b"bad key s3cret"
        if "cut" in path:
            return 403, b"x" * 297 + b"s3cret"
        return 200, json.dumps({} if "nothing" in path else {field: [RESULT, {"link": "http://x"}]}).encode()

    with service(answer) as (url, seen):
        engine = cls(url=url, **FAST)
        found = engine.search("a b", 20)
        assert found == [Hit("http://oslo.no", "Oslo", "A city.", 1.0), Hit("http://x", "", "", 0.5)]
        assert seen[0][0] == f"/?{asked}"
        assert engine.search("nothing") == []
        for query in ("refuse", "cut"):
            with pytest.raises(SearchFailed) as failed:
                engine.search(query)
            assert "s3c" not in str(failed.value)
        engine.close()
    assert b"s3cret" not in pickle.dumps(engine)
