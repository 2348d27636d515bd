from dataclasses import replace

import pytest

pytest.importorskip("matplotlib")


from gem.train.baselines.page import page, write_page
from gem.train.baselines.picture import COLOURS, DASHES, digest, levels, panels, shows, write_picture
from gem.train.baselines.rows import Bounds, Searched, Transferred, Tried, common, task_of, write
from gem.train.baselines.summary import references, summarise_study

from .conftest import a_run, an_exact_run, figures, put

TWO = """
    [[environments]]
    id = "game:GuessTheNumber-v0-easy"
    name = "one"
    cpu_s = 15
    [[variants]]
    name = "first"
    lr = 0.5
    [[variants]]
    name = "second"
    env_kwargs = {reward = "sparse"}
"""
WORDS = """
    title = "What?"
    about = "Why it is asked."
    verdict = '''
    It is **so**.
    '''
    seeds = [1, 2]
"""


def test_a_page_of_nothing_says_so(study):
    text = page(summarise_study(study()))
    assert text.startswith("# Which?\n")
    assert "## Verdict\n\nNone is written yet.\n" in text
    assert "| guess | rebn | - | - | not run | - | - | - | - |" in text
    assert "![" not in text
    assert "Variants compared" not in text


def test_a_page_has_question_verdict_table_and_settings(study):
    found = study(head=WORDS, parts=TWO)
    put(found, found.cells[0], {1: a_run(0.4), 2: a_run(0.6, cpu_s=16.0)})
    put(found, found.cells[1], {1: a_run(0.5), 2: a_run(error="it `broke` <b>\n| badly")})
    text = page(summarise_study(found))
    assert "\nWhy it is asked.\n" in text
    assert "## Verdict\n\nIt is **so**.\n" in text
    assert (
        "| one | first | 20.0% | 30.0% | 50.0% (0.0% to 100.0%) | 50.0% | 100.0% | too short | 13* |" in text
    )
    assert "| one | second | 20.0% | 30.0% | 50.0% (one seed); seed 2 failed |" in text
    assert "\\* At least one run took more CPU seconds than the study expects." in text
    line, *_ = (line for line in text.splitlines() if line.startswith("| one | first |"))
    assert line.endswith("* |")
    assert "- one, second, seed 2: `it 'broke' <b> | badly`" in text
    assert "| variant | first | `lr = 0.5` |" in text
    assert '| variant | second | `env_kwargs = {"reward": "sparse"}` |' in text
    assert "- Machine: A processor, 2 cores, Linux, in float32\n" in text
    assert "- 36 CPU seconds in all, of" in text


def test_a_page_marks_a_warm_up_that_ended_below_random_play(study):
    found = study(head=WORDS, parts=TWO)
    put(found, found.cells[0], {1: a_run(), 2: a_run(before=0.0)})
    put(found, found.cells[1], {1: a_run(), 2: a_run(before=0.19)})
    text = page(summarise_study(found))
    assert "| one | first | 20.0% | 15.0%† |" in text
    assert "| one | second | 20.0% | 24.5% |" in text
    assert "\n† The warm-up ended below random play, beyond noise: one, first, seed 2.\n" in text


def test_a_page_has_what_a_solved_episode_cost(study):
    found = study(head=WORDS, parts=TWO)
    run = a_run(curve=(0.25, 0.5, 0.75), cpu_s=24.0)  # 32 episodes each, so 48 solved
    curve = {**run.curve, "turns": [2.0, 3.0, 4.0], "answer_tokens": [5.0, 5.0, 6.0]}
    put(found, found.cells[0], {1: replace(run, curve=curve), 2: replace(run, curve=curve)})
    put(found, found.cells[1], {1: run, 2: replace(run, curve={})})
    text = page(summarise_study(found))
    assert f"| one | first | 48 | 500.0 | {32 * (10 + 15 + 24) / 48:.1f} |" in text
    assert "| one | second | 48 |" not in text


def test_a_page_has_what_a_search_tried(study):
    parts = TWO.replace("    lr = 0.5\n", "") + "    [search]\n    seeds = [7]\n    grid = {lr = [0.5, 0.25]}"
    found = study(parts=parts)
    first, _ = found.cells
    tried = [Tried({"lr": 0.5}, [0.4], [None], [3.0]), Tried({"lr": 0.25}, [None], ["broke"], [0.0])]
    search = Searched(common(found.config(first)), [7], tried, 0)
    put(found, first, {1: a_run(), 2: a_run()}, point=found.search.points[0], search=search)
    text = page(summarise_study(found))
    assert "| one | first | 0.5 | 40.0% | chosen |" in text
    assert "| one | first | 0.25 | failed |  |" in text
    assert "| one | second | - | not run |  |" in text
    assert "and 3 for the search" in text
    assert "Of `lr` two values were tried, so each choice is at an edge of the grid." in text
    assert "measurements, without the search, and the tokens" in text


def test_a_page_has_the_rounds_of_a_search_and_the_edges_of_its_grid(study):
    search = "[search]\n    seeds = [7]\n    grid = {lr = [0.5, 0.25, 1.0]}\n    shares = [0.5, 1]"
    found = study(parts=f"{TWO.replace('    lr = 0.5' + chr(10), '')}    {search}")
    first, _ = found.cells
    tried = [
        Tried({"lr": lr}, [score], [None], [3.0], share)
        for lr, share, score in ((0.5, 0.5, 0.4), (0.25, 1.0, 0.3), (1.0, 1.0, 0.4))
    ]
    searched = Searched(common(found.config(first)), [7], tried, 2, [0.5, 1.0])
    put(found, first, {1: a_run(), 2: a_run()}, point=found.search.points[2], search=searched)
    text = page(summarise_study(found))
    assert "| environment | variant | lr | episodes | score |  |" in text
    assert "| one | first | 0.5 | 50% | 40.0% |  |" in text
    assert "| one | first | 1 | 100% | 40.0% | chosen (highest lr) |" in text
    assert "All ran with 50% of the episodes, the best of them with 100%." in text
    tried[1] = replace(tried[1], scores=[0.4])
    searched = replace(searched, points=tried, chosen=1)
    put(found, first, {1: a_run(), 2: a_run()}, point=found.search.points[1], search=searched)
    assert "| 40.0% | chosen (lowest lr, the first of 2 as good) |" in page(summarise_study(found))


def test_with_enough_seeds_a_page_has_a_bootstrap_and_a_p_value_by_signs(study):
    seeds = list(range(1, 9))
    found = study(head=f'title = "t"\n    seeds = {seeds}', parts=TWO)
    first, second = found.cells
    put(found, first, {seed: a_run(0.4) for seed in seeds})
    put(found, second, {seed: a_run(0.4 + seed / 100) for seed in seeds})
    _, line = [
        line for line in page(summarise_study(found)).splitlines() if line.startswith("| one | second | +")
    ]  # the first is what RL added
    cells = line.strip("| ").split(" | ")
    assert cells[-1] == "0.008"  # 2 of 256 choices of signs
    low, high = (float(bound) for bound in cells[-2].split(" to "))
    assert 1 < low < 4.5 < high < 8
    put(found, second, {seed: a_run(0.9 if seed == 1 else 0.4 + seed / 1e4) for seed in seeds})
    assert " | none | " in page(summarise_study(found))  # one seed of eight differs


def test_a_page_tells_of_how_many_seeds_and_comparisons_its_p_values_are(study):
    head = 'title = "t"\n    seeds = [1, 2, 3, 4]'
    found = study(head=head, parts=f'{TWO}\n    [[variants]]\n    name = "third"')
    first, second, third = found.cells
    put(found, first, {seed: a_run(0.1 * seed) for seed in (1, 2, 3, 4)})
    put(found, second, {seed: a_run(0.2 * seed) for seed in (1, 2, 3)})
    text = page(summarise_study(found))
    assert "| one | second | +20.0 (-4.8 to +44.8); 3 of 4 seeds | 0.074 | 0.074 |" in text
    assert "with 3 seeds a test by signs alone is never below 0.250" in text
    assert "over 1 comparison so far, of 2 in the study" in text
    put(found, second, {seed: a_run(0.2 * seed) for seed in (1, 2, 3, 4)})
    put(found, third, {seed: a_run(0.3 * seed) for seed in (1, 2, 3, 4)})
    text = page(summarise_study(found))
    assert "Holm's correction is over 2 comparisons." in text
    assert "; 4 of 4 seeds" not in text


def test_a_page_marks_an_interval_narrower_than_its_evaluations(study):
    """The evaluations of these runs have bounds 0.1 from their rates; an exact one adds no noise."""
    found = study(head=WORDS, parts=TWO)

    put(found, found.cells[0], {1: a_run(0.5), 2: a_run(0.501)})
    put(found, found.cells[1], {1: a_run(0.7), 2: a_run(0.702)})
    text = page(summarise_study(found))
    assert "| 50.0% (4.2% to 95.9%)‡ |" in text
    assert "| +20.0 (-30.8 to +70.9)‡ |" in text  # the same chance in both may cancel in part
    assert text.count("\n‡ Few seeds agree") == 3
    put(found, found.cells[1], {1: an_exact_run(0.7), 2: an_exact_run(0.702)})
    text = page(summarise_study(found))
    assert "| 70.1% (68.8% to 71.4%) |" in text
    assert "| one | second | +20.0 (-25.8 to +65.9)‡ | 0.113 | 0.113 |" in text
    put(found, found.cells[0], {1: a_run(0.4), 2: a_run(0.6)})
    put(found, found.cells[1], {1: a_run(0.3), 2: a_run(0.9)})
    assert "‡" not in page(summarise_study(found))


def test_a_page_has_what_rl_added(study):
    found = study(head=WORDS, parts=TWO)
    put(found, found.cells[0], {1: a_run(0.5, before=0.3), 2: a_run(0.8, before=0.4)})
    put(found, found.cells[1], {1: a_run(0.5)})
    text = page(summarise_study(found))
    assert "| one | first | +30.0 (-97.1 to +157.1) | 0.205 | 0.205 |\n" in text
    assert "greedy before" not in text
    assert text.count("| one | second |") == 2  # the table and the cost


def test_a_page_has_what_policies_do_elsewhere(study):
    found = study(
        head='title = "t"\n    seeds = [1, 2]\n    transfer = ["game:GuessTheNumber-v0-hard"]', parts=TWO
    )
    first, second = found.cells
    (config,) = found.transfers(first, found.config(first)).values()
    reached = {"random": figures(0.1), "before": figures(0.2), "after": figures(0.3)}
    moved = {"game:GuessTheNumber-v0-hard": Transferred(task_of(config), reached)}
    better = {
        "game:GuessTheNumber-v0-hard": Transferred(task_of(config), {**reached, "before": figures(0.1)})
    }
    put(found, first, {1: replace(a_run(), transfer=moved), 2: replace(a_run(), transfer=better)})
    stale = {"game:GuessTheNumber-v0-hard": Transferred({**task_of(config), "max_turns": 2}, reached)}
    put(found, second, {seed: replace(a_run(), transfer=stale) for seed in (1, 2)})
    text = page(summarise_study(found))
    assert (
        "| one | first | game:GuessTheNumber-v0-hard | 10.0% | 15.0% | 30.0% (the same on all 2 seeds) "
        "| +20.0 (the same on all 2 seeds) | +15.0 (-48.5 to +78.5) |" in text
    )
    assert "| one | second | game:GuessTheNumber-v0-hard |" not in text


MORE = TWO.replace(
    'id = "game', 'id = "game:GuessTheNumber-v0-hard"\n    [[environments]]\n    id = "game', 1
)


def test_an_environment_without_runs_has_one_line_and_no_panel(study):
    found = study(parts=MORE)
    put(found, found.cells[2], {1: a_run()})
    text = page(summary := summarise_study(found))
    assert "| game:GuessTheNumber-v0-hard | all 2 | - | - | not run | - | - | - | - |" in text
    assert "| one | first | 20.0% |" in text
    assert "| one | second | - | - | not run |" in text
    assert [part.name for part in panels(summary)] == ["one"]


def test_where_there_are_many_environments_what_has_not_run_and_the_curves_are_folded(study, monkeypatch):
    found = study(parts=MORE)
    put(found, found.cells[2], {1: a_run()})
    plain = page(summary := summarise_study(found))
    monkeypatch.setattr("gem.train.baselines.page.MOST_ROWS", 1)
    shown, _, folded = page(summary).partition("<summary>What has not run</summary>")
    assert "| one | first | 20.0% |" in shown
    assert "| - | not run |" not in shown
    assert folded.partition("</details>")[0].count("| - | not run |") == 2
    assert "<summary>Learning curves</summary>" in folded
    assert "What has not run" not in plain
    assert "Learning curves</summary>" not in plain


def test_environments_with_few_instances_are_named(study):
    found = study(parts=TWO)
    run = a_run()
    exact = replace(run.figures["greedy"], success=Bounds(0.5, 0.5, 0.5, 10, exact=True))
    put(found, found.cells[0], {1: replace(run, figures={**run.figures, "greedy": exact})})
    assert "These environments have few instances, which both play: one (10)." in page(summarise_study(found))


def test_lines_of_turns_are_at_the_length_of_episodes(study):
    """The score counts a failure as one turn more, the curve does not."""
    found = study(head='title = "t"\nseeds = [1]\nscore = "turns"')
    run = a_run()
    taken = {"random": (4.0, 4.5), "optimum": (2.0, 2.0)}
    figures = {
        name: replace(run.figures[name], turns=turns, turns_to_success=Bounds(score, score, score, 50))
        for name, (turns, score) in taken.items()
    }
    put(found, found.cells[0], {1: replace(run, figures={**run.figures, **figures})})
    summary = summarise_study(found)
    assert references(summary.cells) == (4.5, 2.0)
    assert levels(summary.cells) == (4.0, 2.0)
    assert "the curve can fall below the solver's line" in page(summary)


def test_a_page_names_what_it_leaves_out(study):
    found = study()
    put(found, found.cells[0], {1: a_run(), 2: a_run(), 30: a_run()})
    (found.rows / "gone--rebn.json").write_text("{}")
    text = page(summarise_study(found))
    assert "The rows hold other seeds too. No figure uses them: guess, rebn: 30." in text
    assert "Rows of no environment and variant of the study: `gone--rebn.json`." in text


def test_a_page_does_not_change_where_settings_are_added_that_rows_are_older_than(study):
    found = study()
    row = put(found, found.cells[0], {1: a_run(), 2: a_run()})
    before = page(summarise_study(found))
    del row.config["temperature"]
    write(found.row_of(found.cells[0]), row)
    assert page(summarise_study(found)) == before


def test_the_page_follows_from_the_files(study, tmp_path):
    found = study(head=WORDS, parts=TWO)
    for cell in found.cells:
        put(found, cell, {1: a_run(0.4), 2: a_run(0.6)})
    folder = tmp_path / "docs"
    path = write_page(summarise_study(found), folder)
    assert path.read_text() == page(summarise_study(found))
    stamp = path.stat().st_mtime_ns
    write_page(summarise_study(found), folder)
    assert path.stat().st_mtime_ns == stamp  # it is not written where nothing changed


def test_the_picture_is_drawn_when_what_it_shows_has_changed(study, tmp_path):
    found = study(parts=TWO)
    assert write_picture(summarise_study(found), tmp_path) is None
    for cell in found.cells:
        put(found, cell, {1: a_run(0.4, curve=[0.1, 0.5]), 2: a_run(0.6, curve=[0.2, 0.4])})
    summary = summarise_study(found)
    path = write_picture(summary, tmp_path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert shows(path, summary)
    stamp = path.stat().st_mtime_ns
    write_picture(summary, tmp_path)
    assert path.stat().st_mtime_ns == stamp
    put(found, found.cells[0], {1: a_run(0.4, curve=[0.1, 0.6]), 2: a_run(0.6, curve=[0.2, 0.4])})
    changed = summarise_study(found)
    assert digest(changed) != digest(summary)
    assert not shows(path, changed)
    write_picture(changed, tmp_path)
    assert shows(path, changed)


def test_seeds_that_stopped_at_different_episodes_are_drawn_apart(study, tmp_path):
    found = study(parts=TWO)
    for cell in found.cells:
        put(found, cell, {1: a_run(curve=[0.1] * 40), 2: a_run(curve=[0.2] * 33)})
    summary = summarise_study(found)
    assert write_picture(summary, tmp_path) is not None
    assert "| stopped early |" in page(summary)


def test_an_environment_with_one_variant_has_its_picture(study, tmp_path):
    found = study()
    (cell,) = found.cells
    put(found, cell, {1: a_run(0.4, curve=[0.1, 0.5])})
    assert write_picture(summarise_study(found), tmp_path) is not None


def test_a_page_tells_what_rl_added_to_greedy_play(study):
    found = study(head=WORDS, parts=TWO)
    put(found, found.cells[0], {n: a_run(0.5 + n / 10, before=0.3, before_greedy=0.6) for n in (1, 2)})
    put(found, found.cells[1], {1: a_run(0.5, before_greedy=0.9), 2: a_run(0.8)})
    text = page(summarise_study(found))
    assert "| one | first | 20.0% | 30.0% | 60.0% | 65.0% (1.5% to 100.0%) | 65.0% |" in text
    assert "| one | first | +35.0 (-28.5 to +98.5) | 0.090 | 0.181 | +5.0 (-58.5 to +68.5) |\n" in text
    assert "| one | second | +35.0 (-155.6 to +225.6) | 0.258 | 0.258 | - |\n" in text


def lines_of(study, count, tmp_path, monkeypatch):
    """Return the figure's panel and legend for a study of that many variants, two seeds each."""
    variants = [
        f'[[variants]]\nname = "a variant number {n} of a long name"\nlr = 0.{n}' for n in range(1, count + 1)
    ]
    found = study(head=WORDS, parts=TWO.split("[[variants]]")[0] + "\n".join(variants))
    for cell in found.cells:
        put(found, cell, {1: a_run(0.4, curve=[0.1, 0.5]), 2: a_run(0.6, curve=[0.2, 0.4])})
    from matplotlib.figure import Figure

    drawn = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (drawn.append(self), save(self, *a, **k)))
    summary = summarise_study(found)
    write_picture(summary, tmp_path)
    return drawn[0], page(summary)


@pytest.mark.parametrize(("count", "lines", "bands"), [(6, 6 * 3 + 2, 6), (7, 7 + 2, 0)])
def test_a_crowded_panel_shows_the_means_alone(count, lines, bands, study, tmp_path, monkeypatch):
    figure, text = lines_of(study, count, tmp_path, monkeypatch)
    assert (len(figure.axes[0].lines), len(figure.axes[0].collections)) == (lines, bands)
    assert ("A panel of more than 6 variants shows the means alone." in text) == (bands == 0)
    box = figure.legends[0].get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.x1  # no name is cut


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_lines_can_be_told_from_the_paper_and_from_one_another():
    assert all((1.05) / (luminance(colour) + 0.05) > 2 for colour in COLOURS)
    assert len({*COLOURS}) * len({*map(str, DASHES)}) >= 20  # more variants than that nobody reads
