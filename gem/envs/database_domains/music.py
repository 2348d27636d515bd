"""A music service: artists, tracks, listeners and what they played."""

from __future__ import annotations

from random import Random

from gem.envs.database_domains.domain import (
    TODAY,
    Domain,
    Operation,
    Question,
    Tables,
    day,
    literal,
    people,
    period,
)

GENRES = ("ambient", "folk", "jazz", "metal", "techno")
PLANS = ("family", "free", "student")
WORDS = ("Amber", "Cloud", "Ember", "Frost", "Lantern", "Meadow", "Orbit", "Shadow")
ENDS = ("Song", "Waltz", "Theme", "Blues", "Echo", "Dance")

SCHEMA = """
CREATE TABLE artists (id INTEGER PRIMARY KEY, name TEXT NOT NULL, genre TEXT NOT NULL);
CREATE TABLE tracks (id INTEGER PRIMARY KEY, artist_id INTEGER NOT NULL REFERENCES artists(id),
  title TEXT NOT NULL, seconds INTEGER NOT NULL, released DATE NOT NULL);
CREATE TABLE listeners (id INTEGER PRIMARY KEY, name TEXT NOT NULL, plan TEXT NOT NULL);
CREATE TABLE plays (id INTEGER PRIMARY KEY, listener_id INTEGER NOT NULL REFERENCES listeners(id),
  track_id INTEGER NOT NULL REFERENCES tracks(id), played DATE NOT NULL);
"""


def fill(rng: Random) -> Tables:
    """Return the rows of a music service."""
    names = people(rng, 60)
    artists = [(i, names[i - 1], rng.choice(GENRES)) for i in range(1, 31)]
    titles = [f"{word} {end}" for word in WORDS for end in ENDS]
    tracks = [
        (i, rng.randrange(1, 31), title, rng.randrange(90, 600), day(rng, "2015-01-01", "2023-12-31"))
        for i, title in enumerate(titles, 1)
    ]
    listeners = [(i, names[i + 29], rng.choice(PLANS)) for i in range(1, 31)]
    plays = [(i, rng.randrange(1, 31), rng.randrange(1, len(tracks) + 1), day(rng)) for i in range(1, 181)]
    return {"artists": artists, "tracks": tracks, "listeners": listeners, "plays": plays}


def charts(rng: Random, tables: Tables) -> Question:
    """Ask for the most played tracks of a time."""
    (first, last), count = period(rng, 120, 400), rng.choice((3, 4, 5))
    return Question(
        f"Which {count} tracks were played most often from {first} to {last}, both days included? Give "
        "title, artist's name and number of plays, most plays first; of equals the lower track id comes "
        "first.",
        "SELECT t.title, a.name, COUNT(*) AS number FROM plays p JOIN tracks t ON t.id = p.track_id "
        f"JOIN artists a ON a.id = t.artist_id WHERE p.played BETWEEN '{first}' AND '{last}' "
        f"GROUP BY t.id, t.title, a.name ORDER BY number DESC, t.id LIMIT {count}",
        ordered=True,
    )


def unheard(rng: Random, tables: Tables) -> Question:
    """Ask for tracks that nobody of a plan played."""
    plan, genre, since = rng.choice(PLANS), rng.choice(GENRES), day(rng, "2024-01-15", "2025-03-31")
    return Question(
        f"Which tracks by {genre} artists were not played on or after {since} by any listener with the plan "
        f"'{plan}'? Give title and release date.",
        f"SELECT t.title, t.released FROM tracks t JOIN artists a ON a.id = t.artist_id "
        f"WHERE a.genre = {literal(genre)} AND NOT EXISTS (SELECT 1 FROM plays p JOIN listeners l "
        f"ON l.id = p.listener_id WHERE p.track_id = t.id AND l.plan = {literal(plan)} "
        f"AND p.played >= '{since}')",
    )


def time_by_plan(rng: Random, tables: Tables) -> Question:
    """Ask for the time listened to a genre."""
    genre, (first, last) = rng.choice(GENRES), period(rng, 200, 450)
    return Question(
        f"Consider the plays of tracks by {genre} artists from {first} to {last}, both days included. For "
        "each plan, give the plan, the number of different listeners who made them, and the sum of the "
        "seconds of the tracks over all those plays. Order by plan, from A to Z; plans without such a play "
        "are left out.",
        "SELECT l.plan, COUNT(DISTINCT l.id), SUM(t.seconds) FROM plays p "
        "JOIN listeners l ON l.id = p.listener_id JOIN tracks t ON t.id = p.track_id "
        f"JOIN artists a ON a.id = t.artist_id WHERE a.genre = {literal(genre)} "
        f"AND p.played BETWEEN '{first}' AND '{last}' GROUP BY l.plan ORDER BY l.plan",
        ordered=True,
    )


def longest(rng: Random, tables: Tables) -> Question:
    """Ask for each artist's longest track."""
    genre, since = rng.choice(GENRES), day(rng, "2015-06-01", "2020-12-31")
    return Question(
        f"For every {genre} artist who has tracks released on or after {since}, give the artist's name, and "
        "title and seconds of the longest of these tracks (of equals the one with the lowest id).",
        "WITH ranked AS (SELECT a.name, t.title, t.seconds, ROW_NUMBER() OVER (PARTITION BY a.id "
        "ORDER BY t.seconds DESC, t.id) AS place FROM artists a JOIN tracks t ON t.artist_id = a.id "
        f"WHERE a.genre = {literal(genre)} AND t.released >= '{since}') "
        "SELECT name, title, seconds FROM ranked WHERE place = 1",
    )


def withdraw(rng: Random, tables: Tables) -> Operation:
    """Withdraw an artist's tracks."""
    artist = rng.choice(tables["tracks"])[1]
    return Operation(
        f"The artist with id {artist} leaves the service: delete the artist, the artist's tracks, and "
        "all plays "
        "of them.",
        f"DELETE FROM plays WHERE track_id IN (SELECT id FROM tracks WHERE artist_id = {artist}); "
        f"DELETE FROM tracks WHERE artist_id = {artist}; DELETE FROM artists WHERE id = {artist};",
    )


def move(rng: Random, tables: Tables) -> Operation:
    """Change the plan of those who listen much."""
    (old, new), count, since = rng.sample(PLANS, 2), rng.choice((3, 4, 5)), day(rng, last="2024-09-30")
    return Operation(
        f"Set the plan to '{new}' for every listener with the plan '{old}' who has at least {count} plays on "
        f"or after {since}.",
        f"UPDATE listeners SET plan = {literal(new)} WHERE plan = {literal(old)} AND id IN (SELECT "
        f"listener_id FROM plays WHERE played >= '{since}' GROUP BY listener_id HAVING COUNT(*) >= {count});",
    )


def release(rng: Random, tables: Tables) -> Operation:
    """Enter a track and its first play."""
    artist, listener = rng.choice(tables["artists"])[0], rng.choice(tables["listeners"])[0]
    track, play = len(tables["tracks"]) + 1, len(tables["plays"]) + 1
    seconds, old = rng.randrange(100, 500), rng.choice(tables["tracks"])
    return Operation(
        f"Enter track {track} by the artist with id {artist}: title 'New Morning', {seconds} seconds, "
        "released "
        f"{TODAY}; and play {play} of it by the listener with id {listener} on the same day. Correct "
        "the seconds "
        f"of track {old[0]}: they are {old[3] + 7}.",
        f"INSERT INTO tracks VALUES ({track}, {artist}, 'New Morning', {seconds}, '{TODAY}'); "
        f"INSERT INTO plays VALUES ({play}, {listener}, {track}, '{TODAY}'); "
        f"UPDATE tracks SET seconds = {old[3] + 7} WHERE id = {old[0]};",
    )


MUSIC = Domain(
    "Music",
    "a music service",
    SCHEMA,
    fill,
    (charts, unheard, time_by_plan, longest),
    (withdraw, move, release),
)
