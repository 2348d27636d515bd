"""Studies: training runs of several environments, variants and seeds, defined in a file, and their results.

`study` reads the file, `runs` runs it, `worker` is the process of one run, `rows` are the committed figures,
`summary` makes tables of them, `page` and `picture` publish them.
"""
