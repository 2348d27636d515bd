"""A search server that uses Google; its keys come from the environment, see `gem.tools.search.remote`."""

from gem.tools.search_engine import main

if __name__ == "__main__":
    main("google")
