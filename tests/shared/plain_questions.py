"""Servers that refuse every conversation but answer the plain question, which shows that they work."""

import json


def answers_plain_questions(answer):
    """Return what a stub server answers: "yes" to the plain question, and `answer` to all else."""

    def respond(body):
        if "Say yes." in json.dumps(body):
            return "yes"
        return answer(body) if callable(answer) else answer

    return respond
