"""A search server that uses SerpAPI; its key comes from the environment, see `gem.tools.search.remote`."""

from gem.tools.search_engine import main

if __name__ == "__main__":
    main("serpapi")
