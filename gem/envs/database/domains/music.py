"""A music service: artists, tracks, listeners and what they played."""

from __future__ import annotations

from random import Random

from gem.envs.database.domains.domain import Tables, day, people, period
from gem.envs.kit.templates import Values

GENRES = ("ambient", "folk", "jazz", "metal", "techno")
PLANS = ("family", "free", "student")
WORDS = ("Amber", "Cloud", "Ember", "Frost", "Lantern", "Meadow", "Orbit", "Shadow")
ENDS = ("Song", "Waltz", "Theme", "Blues", "Echo", "Dance")


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


def charts(rng: Random, tables: Tables) -> Values:
    """Ask for the most played tracks of a period."""
    return {**period(rng, 120, 400), "count": rng.choice((3, 4, 5))}


def unheard(rng: Random, tables: Tables) -> Values:
    """Ask for tracks that no listener of a plan played."""
    return {
        "plan": rng.choice(PLANS),
        "genre": rng.choice(GENRES),
        "since": day(rng, "2024-01-15", "2025-03-31"),
    }


def time_by_plan(rng: Random, tables: Tables) -> Values:
    """Ask for the time listened to a genre."""
    return {"genre": rng.choice(GENRES), **period(rng, 200, 450)}


def longest(rng: Random, tables: Tables) -> Values:
    """Ask for each artist's longest track."""
    return {"genre": rng.choice(GENRES), "since": day(rng, "2015-06-01", "2020-12-31")}


def withdraw(rng: Random, tables: Tables) -> Values:
    """Withdraw an artist's tracks."""
    return {"artist": rng.choice(tables["tracks"])[1]}


def move(rng: Random, tables: Tables) -> Values:
    """Change the plan of frequent listeners."""
    (old, new), count, since = rng.sample(PLANS, 2), rng.choice((3, 4, 5)), day(rng, last="2024-09-30")
    return {"new": new, "old": old, "count": count, "since": since}


def release(rng: Random, tables: Tables) -> Values:
    """Add a track and its first play."""
    artist, listener = rng.choice(tables["artists"])[0], rng.choice(tables["listeners"])[0]
    seconds, old = rng.randrange(100, 500), rng.choice(tables["tracks"])
    return {
        "track": len(tables["tracks"]) + 1,
        "artist": artist,
        "seconds": seconds,
        "play": len(tables["plays"]) + 1,
        "listener": listener,
        "old": old[0],
        "longer": old[3] + 7,
    }
