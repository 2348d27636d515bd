"""A search server over documents of yours: ``--corpus_path`` names them."""

from gem.tools.search_engine import main

if __name__ == "__main__":
    main()
