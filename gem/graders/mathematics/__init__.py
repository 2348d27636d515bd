"""Mathematics graders, in the order in which a reply passes through them.

A reply's answer: `replies` (boxes), `statements` (sentences), `corrections`, `languages`, `number_words`.
An answer's text: `notation` (styles, notations), `units`, `nouns`, then `latex`, which makes `trees` of it.
Two answers: `decision`, which asks `quantities` and `algebra`, and this `intervals`, `scalars`, `evaluation`.
The form of an answer: `values`, `questions`. `worker` is the program that asks sympy.
"""
