"""One trial of the text games under one Python: whichever package it knows as `gem`, ours or gem-llm's.

Called with the trial's number and ids; prints ``{id: {"resets": per CPU-second, "steps": per CPU-second}}``.
Both packages run this same code. A step is timed alone: games of legal actions are
played once to record them and then again from the same seeds, with drawing and resets outside the clock.
"""

import json
import random
import sys
import time

import gem

CPU_S = 0.15  # of timed work per figure, at least
LEAST_RESETS = 8
MOST_GAMES = 100  # played for the steps
MOST_S = 1.5  # for the steps of one id: where resets take most of the time, fewer steps must do


def main(trial, ids):
    """Measure each id on seeds of this trial's own."""
    figures = {}
    for env_id in ids:
        env = gem.make(env_id)
        env.reset(seed=0)  # builds what is built once
        first = 1 + trial * 1_000_000
        resets, cpu_s = 0, 0.0
        while cpu_s < CPU_S or resets < LEAST_RESETS:
            start = time.process_time()
            for seed in range(first + resets, first + resets + LEAST_RESETS):
                env.reset(seed=seed)
            cpu_s += time.process_time() - start
            resets += LEAST_RESETS
        figures[env_id] = {"resets": resets / cpu_s, "steps": steps_per_s(env_id, first)}
    return figures


def steps_per_s(env_id, first):
    """Return steps per CPU-second over games of random legal actions."""
    choice = random.Random(first)
    started = time.process_time()
    games = []  # environment, seed, its actions
    while len(games) < MOST_GAMES and (len(games) < 2 or time.process_time() - started < CPU_S):
        env, seed, actions, done = gem.make(env_id), first + len(games), [], False
        env.reset(seed=seed)
        while not done:
            actions.append(legal_action(env, env_id, choice))
            _, _, terminated, truncated, _ = env.step(actions[-1])
            done = terminated or truncated
        games.append((env, seed, actions))
    steps, cpu_s = 0, 0.0
    while cpu_s < CPU_S and time.process_time() - started < MOST_S:
        for env, seed, _ in games:
            env.reset(seed=seed)
        start = time.process_time()
        for env, _, actions in games:
            for action in actions:
                env.step(action)
        cpu_s += time.process_time() - start
        steps += sum(len(actions) for _, _, actions in games)
    return steps / cpu_s


def legal_action(env, env_id, choice):
    """Return a random legal action; written here for the games for which gem-llm has none."""
    board = getattr(env, "board", None)
    if "Sudoku" in env_id and isinstance(board, list):
        side = len(board)
        box = round(side**0.5)
        moves = [
            (row, column, digit)
            for row in range(side)
            for column in range(side)
            if not board[row][column]
            for digit in range(1, side + 1)
            if digit not in board[row]
            and all(board[r][column] != digit for r in range(side))
            and all(
                board[r][c] != digit
                for r in range(row // box * box, row // box * box + box)
                for c in range(column // box * box, column // box * box + box)
            )
        ]
        row, column, digit = choice.choice(moves)
        return f"\\boxed{{{row + 1} {column + 1} {digit}}}"
    if "Hanoi" in env_id and isinstance(board, dict):
        moves = [
            (source, goal)
            for source in board
            for goal in board
            if source != goal and board[source] and (not board[goal] or board[goal][-1] > board[source][-1])
        ]
        source, goal = choice.choice(moves)
        return f"\\boxed{{{source} {goal}}}"
    action = env.sample_random_action()
    return (
        action if "\\boxed" in action else f"\\boxed{{{action}}}"
    )  # gem-llm's FifteenPuzzle leaves out the box


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), sys.argv[2:])))
