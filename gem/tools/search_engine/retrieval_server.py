"""A search server over your documents, given by ``--corpus_path``."""

from gem.tools.search_engine import main

if __name__ == "__main__":
    main()
