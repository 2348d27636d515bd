"""Studies: environments, variants and seeds that are trained as a file says, and what came of them.

`study` reads the file, `runs` carries it out, `worker` is the process of one run, `rows` are the committed
figures, `summary` makes a table of them, `page` and `picture` publish it.
"""
