"""Of a suite that goes through every id, one id of each environment is fast: the others are the same code."""

import pytest


def first_of_each(ids, mark=pytest.mark.system, of=lambda env_id: env_id.rpartition("-v0")[0] or env_id):
    """Return the ids as parameters; of those with the same `of`, all but the first have the mark."""
    names, params = set(), []
    for env_id in ids:
        params.append(pytest.param(env_id, marks=[mark] * (of(env_id) in names)))
        names.add(of(env_id))
    return params
