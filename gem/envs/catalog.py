"""Every id of our own, as plain data. A new game is one file and one row here."""

from __future__ import annotations

from typing import Any

from gem.registry import Family, register, register_family
from gem.specs import EnvSpec, Solver

GAMES: tuple[tuple[str, str, dict[str, Any], int | None, Solver | float], ...] = (
    # id after "game:", class in gem.envs.games, keywords, turns that the task states, solver: a number is
    # the rate at which a measured one wins, over seeds 0 to 499
    (
        "GuessTheNumber-v0-easy",
        "guess_the_number:GuessTheNumber",
        {"max_number": 10, "max_turns": 4},
        4,
        "exact",
    ),
    (
        "GuessTheNumber-v0-hard",
        "guess_the_number:GuessTheNumber",
        {"max_number": 50, "max_turns": 7},
        7,
        "exact",
    ),
    ("GuessTheNumber-v0-random", "guess_the_number:GuessTheNumber", {"max_number": (5, 100)}, 7, "exact"),
    ("FifteenPuzzle-v0-easy", "fifteen_puzzle:FifteenPuzzle", {"num_rows": 2, "max_turns": 10}, 10, "exact"),
    ("FifteenPuzzle-v0-hard", "fifteen_puzzle:FifteenPuzzle", {"num_rows": 4, "max_turns": 50}, 50, "exact"),
    (
        "FifteenPuzzle-v0-random",
        "fifteen_puzzle:FifteenPuzzle",
        {"num_rows": (2, 4), "max_turns": 50},
        50,
        "exact",
    ),
    ("Game2048-v0-easy", "game_2048:Game2048", {"target": 64, "max_turns": 50}, 50, 0.986),
    ("Game2048-v0-hard", "game_2048:Game2048", {"target": 512, "max_turns": 350}, 350, 0.926),
    ("Game2048-v0-extreme-hard", "game_2048:Game2048", {"target": 2048, "max_turns": 1200}, 1200, 0.512),
    ("Game2048-v0-random", "game_2048:Game2048", {"target": (64, 256), "max_turns": 160}, 160, 0.976),
    (
        "Mastermind-v0-easy",
        "mastermind:Mastermind",
        {"code_length": 2, "num_numbers": 6, "max_turns": 10},
        10,
        "exact",
    ),
    (
        "Mastermind-v0-hard",
        "mastermind:Mastermind",
        {"code_length": 4, "num_numbers": 8, "max_turns": 30},
        30,
        "exact",
    ),
    (
        "Mastermind-v0-random",
        "mastermind:Mastermind",
        {"code_length": (2, 4), "num_numbers": (5, 8), "max_turns": 20},
        20,
        "exact",
    ),
    (
        "Minesweeper-v0-easy",
        "minesweeper:Minesweeper",
        {"rows": 5, "cols": 5, "num_mines": 5, "max_turns": 25},
        25,
        0.788,
    ),
    (
        "Minesweeper-v0-hard",
        "minesweeper:Minesweeper",
        {"rows": 8, "cols": 8, "num_mines": 12, "max_turns": 64},
        64,
        0.828,
    ),
    (
        "Minesweeper-v0-random",
        "minesweeper:Minesweeper",
        {"rows": (5, 8), "cols": (5, 8), "num_mines": (4, 10), "max_turns": 64},
        64,
        0.842,
    ),
    (
        "Sokoban-v0-easy",
        "sokoban:Sokoban",
        {"height": 6, "width": 6, "num_boxes": 2, "max_turns": 20},
        20,
        "exact",
    ),
    (
        "Sokoban-v0-hard",
        "sokoban:Sokoban",
        {"height": 8, "width": 8, "num_boxes": 4, "max_turns": 50},
        50,
        "exact",
    ),
    (
        "Sokoban-v0-random",
        "sokoban:Sokoban",
        {"height": (6, 8), "width": (6, 8), "num_boxes": (2, 3), "max_turns": 50},
        50,
        "exact",
    ),
    ("Sudoku-v0-easy", "sudoku:Sudoku", {"clues": 6, "max_turns": 15, "scale": 4}, 15, "exact"),
    ("Sudoku-v0-hard", "sudoku:Sudoku", {"clues": 33, "max_turns": 50}, 50, "exact"),
    ("Sudoku-v0-random", "sudoku:Sudoku", {"clues": (30, 60), "max_turns": 75}, 75, "exact"),
    ("TowerofHanoi-v0-easy", "tower_of_hanoi:TowerOfHanoi", {"num_disks": 3, "max_turns": 10}, 10, "exact"),
    ("TowerofHanoi-v0-hard", "tower_of_hanoi:TowerOfHanoi", {"num_disks": 5, "max_turns": 35}, 35, "exact"),
    (
        "TowerofHanoi-v0-random",
        "tower_of_hanoi:TowerOfHanoi",
        {"num_disks": (3, 5), "max_turns": 35, "start": "scattered"},
        35,
        "exact",
    ),
    ("Hangman-v0-easy", "hangman:Hangman", {"word_length": 3, "max_turns": 10}, 10, 0.884),
    ("Hangman-v0-hard", "hangman:Hangman", {"word_length": 7, "max_turns": 20}, 20, "exact"),
    ("Hangman-v0-random", "hangman:Hangman", {"word_length": (3, 7), "max_turns": 20}, 20, "exact"),
    ("Wordle-v0-easy", "wordle:Wordle", {"word_length": 3, "max_turns": 15}, 15, "exact"),
    ("Wordle-v0-hard", "wordle:Wordle", {"word_length": 5, "max_turns": 25}, 25, "exact"),
    ("Wordle-v0-random", "wordle:Wordle", {"word_length": (3, 5), "max_turns": 25}, 25, "exact"),
    ("WordSearch-v0-easy", "word_search:WordSearch", {"num_words": 5, "max_turns": 20}, 20, "exact"),
    (
        "WordSearch-v0-hard",
        "word_search:WordSearch",
        {"num_words": 5, "hardcore": True, "max_turns": 20},
        20,
        "exact",
    ),
    ("WordSearch-v0-random", "word_search:WordSearch", {"num_words": (3, 8), "max_turns": 20}, 20, "exact"),
    ("Crosswords-v0-easy", "crosswords:Crosswords", {"num_words": 3, "max_turns": 30}, 30, "exact"),
    (
        "Crosswords-v0-hard",
        "crosswords:Crosswords",
        {"num_words": 3, "hardcore": True, "max_turns": 40},
        40,
        "exact",
    ),
    ("Crosswords-v0-random", "crosswords:Crosswords", {"num_words": (3, 6), "max_turns": 40}, 40, "exact"),
    ("WikiGame-v0-easy", "wiki_game:WikiGame", {"clicks": (2, 3), "max_turns": 30}, 30, "exact"),
    ("WikiGame-v0-hard", "wiki_game:WikiGame", {"clicks": (4, 6), "max_turns": 15}, 15, "exact"),
)

NEED_WORDFREQ = ("hangman", "wordle", "word_search")
"""The modules of games whose words come from the package of the extra `games`."""

MADE: tuple[tuple[str, str, dict[str, Any], str | None], ...] = (
    # id, class in gem.envs, keywords, extra: tasks that a program makes, so that no data set is needed
    (
        "math:Arithmetic-v0-easy",
        "math_env:ArithmeticEnv",
        {"operands": 2, "digits": (1, 2), "operations": ("+", "-")},
        None,
    ),
    (
        "math:Arithmetic-v0-hard",
        "math_env:ArithmeticEnv",
        {"operands": (4, 6), "digits": (1, 3), "operations": ("+", "-", "*")},
        None,
    ),
    (
        "math:Arithmetic-v0-random",
        "math_env:ArithmeticEnv",
        {"operands": (2, 6), "digits": (1, 3), "operations": ("+", "-", "*", "/")},
        None,
    ),
    ("math:WordProblems-v0-easy", "math_env:WordProblemsEnv", {"steps": (1, 2)}, None),
    (
        "math:WordProblems-v0-hard",
        "math_env:WordProblemsEnv",
        {"steps": (4, 6), "largest": 60, "distractors": (1, 2)},
        None,
    ),
    (
        "math:WordProblems-v0-random",
        "math_env:WordProblemsEnv",
        {"steps": (1, 8), "largest": 60, "distractors": (0, 2)},
        None,
    ),
    ("qa:Facts-v0-easy", "qa_env:FactsEnv", {"hops": 1}, None),
    ("qa:Facts-v0-hard", "qa_env:FactsEnv", {"hops": 2}, None),
    ("qa:Facts-v0-random", "qa_env:FactsEnv", {"hops": (1, 2)}, None),
    ("code:Basics-v0-easy", "code_env:CodeBasics", {"level": "easy"}, "code"),
    ("code:Basics-v0-medium", "code_env:CodeBasics", {"level": "medium"}, "code"),
    ("code:Basics-v0-hard", "code_env:CodeBasics", {"level": "hard"}, "code"),
    ("code:Basics-v0-random", "code_env:CodeBasics", {}, "code"),
    (
        "vision:Geometry-v0-easy",
        "math_visual_env:GeometryEnv",
        {"kinds": ("count", "angle", "rectangle", "circle")},
        "vision",
    ),
    (
        "vision:Geometry-v0-hard",
        "math_visual_env:GeometryEnv",
        {"kinds": ("parallels", "right_triangle", "polygon", "notched")},
        "vision",
    ),
    ("vision:Geometry-v0-random", "math_visual_env:GeometryEnv", {}, "vision"),
    (
        "vision:Charts-v0-easy",
        "math_visual_env:ChartsEnv",
        {
            "kinds": ("bars", "lines"),
            "questions": ("value", "most", "difference"),
            "labels": (3, 5),
            "written": True,
        },
        "vision",
    ),
    (
        "vision:Charts-v0-hard",
        "math_visual_env:ChartsEnv",
        {"kinds": ("bars", "groups", "lines"), "questions": ("total", "above", "change"), "labels": (5, 7)},
        "vision",
    ),
    ("vision:Charts-v0-random", "math_visual_env:ChartsEnv", {}, "vision"),
)

DATA: tuple[tuple[str, str, str, str | None, dict[str, Any]], ...] = (
    # id, class in gem.envs, data set, split, columns where they are not `problem` and `answer`
    ("math:ASDiv2K", "math_env:MathEnv", "axon-rl/ASDIV-2k", None, {}),
    ("math:GSM8K", "math_env:MathEnv", "axon-rl/GSM-8k", None, {}),
    ("math:Math12K", "math_env:MathEnv", "axon-rl/MATH-12k", None, {}),
    ("math:Math8K-3to5", "math_env:MathEnv", "axon-rl/MATH-lvl3to5-8k", None, {}),
    ("math:Orz57K", "math_env:MathEnv", "axon-rl/ORZ-57k", None, {}),
    ("math:DeepScaleR40K", "math_env:MathEnv", "axon-rl/DeepScaleR-40K", None, {}),
    ("math:Geometry3K", "math_visual_env:MathVisualEnv", "axon-rl/geometry3k", "train", {}),
    ("qa:NaturalQuestions", "qa_env:QaEnv", "axon-rl/NaturalQuestions", "train", {}),
    ("qa:HotpotQA", "qa_env:QaEnv", "axon-rl/HotpotQA", "train", {}),
    ("code:CodeContest", "code_env:CodeEnv", "axon-rl/CodeContest", "train", {}),
    ("code:Taco8k", "code_env:CodeEnv", "axon-rl/TACO-8k", "train", {}),
    ("code:PrimeIntellect15k", "code_env:CodeEnv", "axon-rl/PrimeIntellect-15k", "train", {}),
    ("eval:CodeContest", "code_env:CodeEnv", "axon-rl/CodeContest", "test", {}),
    *(
        (
            f"logic:RuleTaker-d{depth}",
            "qa_env:QaEnv",
            f"axon-rl/RuleTaker-d{depth}-70k",
            "train",
            {"question_key": "question", "extract_boxed": True},
        )
        for depth in (0, 1, 2, 3, 5)
    ),
    *(
        (f"eval:{name}", "math_env:MathEnv", "axon-rl/math-eval", split, {})
        for name, split in (
            ("MATH500", "math"),
            ("AMC", "amc"),
            ("OlympiadBench", "olympiad_bench"),
            ("Minerva", "minerva"),
            ("AIME24", "aime24"),
        )
    ),
    (
        "eval:QaOpen",
        "qa_env:QaEnv",
        "google-research-datasets/nq_open",
        "validation",
        {"question_key": "question"},
    ),
    *(
        (f"eval:{name}", "qa_env:QaEnv", "axon-rl/search-eval", split, {"question_key": "question"})
        for name, split in (
            ("2Wiki", "2wiki"),
            ("PopQA", "popqa"),
            ("TriviaQA", "tq"),
            ("HotpotQA", "hotpotqa"),
            ("Bamboogle", "bamboogle"),
            ("NaturalQuestions", "nq"),
            ("Musique", "musique"),
        )
    ),
)
"""Data sets of the Hugging Face hub, which `gem.tasks.sources` finds; none is part of gem."""

RG_NAMES = """
ab acre advanced_geometry aiw arc_1d arc_agi base_conversion basic_arithmetic bf binary_alternation
binary_matrix bitwise_arithmetic boxnet caesar_cipher calendar_arithmetic chain_sum circuit_logic codeio
coin_flip color_cube_rotation complex_arithmetic count_bits count_primes countdown course_schedule
cryptarithm decimal_arithmetic decimal_chain_sum dice emoji_mystery family_relationships figlet_font
fraction_simplification futoshiki game_of_life game_of_life_halting gcd graph_color group_anagrams
gsm_symbolic intermediate_integration isomorphic_strings jugs kakurasu knight_swap knights_knaves
largest_island lcm leg_counting letter_counting letter_jumble list_functions mahjong_puzzle
manipulate_matrix maze mini_sudoku modulo_grid n_queens needle_haystack number_filtering number_format
number_sequence number_sorting palindrome_generation palindrome_partitioning path_star
polynomial_equations polynomial_multiplication pool_matrix power_function prime_factorization products
propositional_logic puzzle24 quantum_lock ransom_note rearc rectangle_count rotate_matrix rotten_oranges
rubiks_cube rush_hour self_reference sentence_reordering shortest_path simple_equations simple_geometry
simple_integration sokoban spell_backward spiral_matrix string_insertion string_manipulation
string_splitting string_synthesis sudoku survo syllogism time_intervals tower_of_hanoi tsumego
word_ladder word_sequence_reversal word_sorting zebra_puzzles
""".split()  # noqa: SIM905  a hundred quoted names would fill two screens
"""The data sets of reasoning-gym 0.1.25 that need no configuration; of a later release it is asked."""

RG_UNSOLVED = ("boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour")
"""Those that give no reference answer."""

REASONING_GYM = Family(
    prefix="rg",
    entry_point="gem.envs.reasoning_gym:ReasoningGymEnv",
    names=tuple(RG_NAMES),
    more="gem.envs.reasoning_gym:names",
    extra="rg",
    package="reasoning_gym",
    claims={"max_turns": 1, "solver": "oracle"},
    exceptions={name: {"solver": "none"} for name in RG_UNSOLVED},
)


GYMNASIUM_TOY_TEXT = {
    "Blackjack-v1": (20, 0.452),
    "CliffWalking-v1": (60, 1.0),
    "CliffWalkingSlippery-v1": (300, 1.0),
    "FrozenLake-v1": (100, 0.714),
    "FrozenLake8x8-v1": (200, 0.908),
    "Taxi-v4": (200, 1.0),
}
"""The turns that the task states, and the rate at which optimal play wins, over seeds 0 to 499."""

GYMNASIUM = Family(
    prefix="gymnasium",
    entry_point="gem.envs.gymnasium:GymnasiumEnv",
    names=tuple(GYMNASIUM_TOY_TEXT),
    extra="gymnasium",
    package="gymnasium",
    exceptions={
        name: {"max_turns": turns, "solver": "measured", "solver_rate": rate}
        for name, (turns, rate) in GYMNASIUM_TOY_TEXT.items()
    },
)


TEXTARENA_GAMES: dict[int, str] = {
    1: """
2048-v0-ultra-easy 2048-v0-mega-easy 2048-v0-super-easy 2048-v0-very-easy 2048-v0-easy 2048-v0
2048-v0-hard 2048-v0-very-hard 2048-v0-extreme 2048-v0-3x3 2048-v0-5x5 2048-v0-6x6 2048-v0-8x8
2048-v0-10x10 Bandit-v0 Bandit-v0-hard Blackjack-v0 Blackjack-v0-long Countdown-v0 Crosswords-v0
Crosswords-v0-hardcore Cryptarithm-v0 FifteenPuzzle-v0 FrozenLake-v0 FrozenLake-v0-random
FrozenLake-v0-hardcore GuessTheNumber-v0 GuessTheNumber-v0-hardcore GuessWho-v0 Hangman-v0
Hangman-v0-hardcore LightsOut-v0 LogicPuzzle-v0 LogicPuzzle-v0-hard Mastermind-v0 Mastermind-v0-hard
Mastermind-v0-extreme Minesweeper-v0 Minesweeper-v0-small Minesweeper-v0-medium Minesweeper-v0-hard
PegJump-v0 RushHour-v0 Secretary-v0 Secretary-v0-long Set-v0 Klondike-v0 Slitherlink-v0 Sokoban-v0
Sokoban-v0-medium Sudoku-v0-very-easy Sudoku-v0-easy Sudoku-v0 Sudoku-v0-medium Sudoku-v0-hard
ThreeCardMonte-v0 TowerOfHanoi-v0 TowerOfHanoi-v0-medium TowerOfHanoi-v0-hard
TowerOfHanoi-v0-hardcore TowerOfHanoi-v0-extreme TwentyQuestions-v0 TwentyQuestions-v0-hardcore
WordLadder-v0 WordLadder-v0-medium WordLadder-v0-hard Wordle-v0 Wordle-v0-hardcore Wordle-v0-long
Wordle-v0-long-hardcore WordSearch-v0 WordSearch-v0-hardcore UltimateTexasHoldem-v0
""",
    2: """
Alquerque-v0 Battleship-v0 Battleship-v0-standard Battleship-v0-large Battleship-v0-extreme
Breakthrough-v0-tiny Breakthrough-v0-small Breakthrough-v0 Breakthrough-v0-large
Breakthrough-v0-blind Breakthrough-v0-long Briscola-v0 Checkers-v0 Checkers-v0-long Chess-v0
Chess-v0-long Chess-v0-blind Chopsticks-v0 Chopsticks-v0-medium Chopsticks-v0-long
ColonelBlotto-v0-small ColonelBlotto-v0 ColonelBlotto-v0-large ColonelBlotto-v0-extreme
ConnectFour-v0 ConnectFour-v0-blind ConnectFour-v0-large Crusade-v0 Debate-v0 Debate-v0-medium
Debate-v0-long DontSayIt-v0 DontSayIt-v0-hardcore DontSayIt-v0-unlimited GameOfPureStrategy-v0
GermanWhist-v0 Golf-v0 Golf-v0-medium HighSociety-v0 IndianPoker-v0-short IndianPoker-v0
IndianPoker-v0-medium IndianPoker-v0-long IndianPoker-v0-extreme IteratedMatchingPennies-v0
IteratedPrisonersDilemma-v0 IteratedRockPaperScissors-v0 IteratedTwoThirdsAverage-v0
IteratedStagHunt-v0 IteratedStagHunt-v0-randomized KuhnPoker-v0 KuhnPoker-v0-short
KuhnPoker-v0-medium KuhnPoker-v0-long KuhnPoker-v0-extreme LinesOfAction-v0 LetterAuction-v0
LetterAuction-v0-medium LetterAuction-v0-hard MemoryGame-v0 MemoryGame-v0-medium MemoryGame-v0-hard
Nim-v0 Nim-v0-medium Nim-v0-large Othello-v0-tiny Othello-v0-small Othello-v0 Othello-v0-big
Othello-v0-huge Othello-v0-hard PigDice-v0 PigDice-v0-short PigDice-v0-long PigDice-v0-50
PigDice-v0-100 PigDice-v0-150 PigDice-v0-200 PigDice-v0-250 PigDice-v0-300 PigDice-v0-350
PigDice-v0-400 PigDice-v0-450 PigDice-v0-500 QuantumTicTacToe-v0 ReverseTicTacToe-v0
ScenarioPlanning-v0 SimpleBlindAuction-v0-quick SimpleBlindAuction-v0 SimpleBlindAuction-v0-rich
SimpleNegotiation-v0-short SimpleNegotiation-v0 SimpleNegotiation-v0-long SimpleTak-v0
SimpleTak-v0-medium SimpleTak-v0-large SimpleTak-v0-extreme SpellingBee-v0-small SpellingBee-v0
SpellingBee-v0-large SpiteAndMalice-v0 Stratego-v0 Tak-v0 Tak-v0-medium Tak-v0-hard TicTacToe-v0
TruthAndDeception-v0 TruthAndDeception-v0-long TruthAndDeception-v0-extreme TwoDollar-v0
UltimateTicTacToe-v0 IteratedUltimatumGame-v0 IteratedUltimatumGame-v0-alternate
UsedCarNegotiation-v0 UsedCarNegotiation-v0-strong-buyer UsedCarNegotiation-v0-strong-seller
UsedCar-v0-balanced WildTicTacToe-v0 WordChains-v0 Snake-v0 Snake-v0-standard Snake-v0-large
Surround-v0 Surround-v0-standard Surround-v0-large LiarsDice-v0-small LiarsDice-v0
LiarsDice-v0-large Poker-v0-small Poker-v0 Poker-v0-long Poker-v0-extreme SantoriniBaseFixed-v0
BabyAiText-v0 NewRecruit-v0
""",
    3: """
ThreePlayerTicTacToe-v0 ThreePlayerGOPS-v0 ThreePlayerIPD-v0 CharacterConclave-v0
CharacterConclave-v0-long CharacterConclave-v0-extreme
""",
    4: """
Taboo-v0 Taboo-v0-animals Taboo-v0-cars Taboo-v0-city/country Taboo-v0-food Taboo-v0-literature
Taboo-v0-people Taboo-v0-tv Taboo-v0-long Taboo-v0-full PublicGoodsGame-v0 MarketEntryGame-v0
Codenames-v0 Codenames-v0-hardcore SettlersOfCatan-v0
""",
    6: """
SecretMafia-v0 ScorableGames-v0 ScorableGames-v0-conservative ScorableGames-v0-game1
ScorableGames-v0-game2 ScorableGames-v0-game3 ScorableGames-v0-7players
ScorableGames-v0-medicalethics ScorableGames-v0-vendorretailer
""",
}
"""The games of TextArena 0.7.4 by how many play; of a later release it is asked."""

TEXTARENA = Family(
    prefix="ta",
    entry_point="gem.envs.textarena:make_game",
    names=tuple(name for games in TEXTARENA_GAMES.values() for name in games.split()),
    more="gem.envs.textarena:names",
    extra="textarena",
    package="textarena",
    exceptions={
        name: {"seats": tuple(f"player_{i}" for i in range(players))}
        for players, games in TEXTARENA_GAMES.items()
        if players > 1
        for name in games.split()
    },
)

MULTIAGENT: tuple[tuple[str, str, tuple[str, ...], int], ...] = (
    # id after "multi:", class in gem.envs.multiagent, seats, turns that the task states
    ("KuhnPoker-v0", "kuhn_poker:KuhnPoker", ("player_0", "player_1"), 3),
    ("ConnectFour-v0", "connect_four:ConnectFour", ("player_0", "player_1"), 38),
    ("MatrixGame-v0", "matrix_game:MatrixGame", ("player_0", "player_1"), 5),
    ("Negotiation-v0", "negotiation:Negotiation", ("player_0", "player_1"), 8),
    ("ServiceDesk-v0", "service_desk:ServiceDesk", ("agent", "customer"), 30),
)

ONE_SEAT: tuple[tuple[str, str, str, str, dict[str, Any], int, Solver | float], ...] = (
    # what stands behind the game's id, the game, the seat, who plays the others, the game's keywords, turns
    # of the seat at most, solver: the rate at which it succeeds over seeds 0 to 499
    ("vs-random", "KuhnPoker-v0", "player_0", "random", {"expert": "exploiter"}, 2, 0.744),
    ("vs-solver", "KuhnPoker-v0", "player_0", "solver", {}, 2, 0.52),
    ("vs-random", "ConnectFour-v0", "player_0", "random", {"depth": 3}, 19, 1.0),
    ("vs-solver", "ConnectFour-v0", "player_0", "solver", {"depth": 3}, 19, 0.492),
    ("vs-solver", "Negotiation-v0", "player_0", "solver", {}, 4, 0.968),
    ("scripted", "ServiceDesk-v0", "agent", "solver", {}, 29, "oracle"),
)
"""None for MatrixGame: against tit for tat, one constant answer is as good as any play."""


TERMINAL = """
Archives Checksums ConfigEdit CsvReport Duplicates Encodings FindText GitHistory GitMerge JsonLines
LogAnalysis Makefile PatchRepo Permissions Processes Rename Schedule Service Symlinks
""".split()  # noqa: SIM905  a column of quoted names would fill the screen
"""Families of tasks at a shell, each in two levels."""


DATABASES = ("Airline", "Bank", "Clinic", "Hotel", "Library", "Music", "Shop", "University", "Warehouse")
"""The worlds of gem.envs.database_domains, each with questions and operations."""


def register_all() -> None:
    """Register the whole catalogue; doing it twice is harmless."""
    for name, entry_point, kwargs, max_turns, solver in GAMES:
        register(
            EnvSpec(
                f"game:{name}",
                f"gem.envs.games.{entry_point}",
                kwargs,
                extra="games" if entry_point.partition(":")[0] in NEED_WORDFREQ else None,
                max_turns=max_turns,
                **_solver(solver),
            )
        )
    for name, entry_point, kwargs, extra in MADE:
        register(
            EnvSpec(
                name,
                f"gem.envs.{entry_point}",
                kwargs,
                extra=extra,
                max_turns=1,
                waits=entry_point.startswith("code_env:"),
                solver="oracle",
            )
        )
    for name, entry_point, data, split, columns in DATA:
        kwargs = {"dataset_name": data, **({"split": split} if split else {}), **columns}
        register(
            EnvSpec(
                name,
                f"gem.envs.{entry_point}",
                kwargs,
                extra="code,data" if entry_point.startswith("code_env:") else "data",
                data=data,
                max_turns=1,
                waits=entry_point.startswith("code_env:"),
                solver="none" if entry_point.startswith("code_env:") else "oracle",  # tests are no solution
            )
        )
    for name, entry_point, seats, max_turns in MULTIAGENT:
        entry_point = f"gem.envs.multiagent.{entry_point}"
        register(EnvSpec(f"multi:{name}", entry_point, max_turns=max_turns, seats=seats))
    for suffix, game, seat, others, keywords, max_turns, solver in ONE_SEAT:
        register(
            EnvSpec(
                f"multi:{game}-{suffix}",
                "gem.envs.multiagent.seat_env:one_seat",
                {"game": f"multi:{game}", "seat": seat, "others": others, **keywords},
                max_turns=max_turns,
                **_solver(solver),
            )
        )
    for name in TERMINAL:
        for level in ("easy", "hard"):
            register(
                EnvSpec(
                    f"terminal:{name}-v0-{level}",
                    "gem.envs.terminal:TerminalEnv",
                    {"name": name, "level": level},
                    extra="terminal",
                    max_turns=20,
                    deterministic=False,  # the tasks are; clocks and process numbers in what is shown are not
                    forkable=False,
                    waits=True,
                    solver="oracle" if name == "PatchRepo" else "exact",
                )
            )
    for name in DATABASES:
        for kind in ("questions", "operations"):
            register(
                EnvSpec(
                    f"db:{name}-v0-{kind}",
                    "gem.envs.database:DatabaseEnv",
                    {"domain": name, "kind": kind},
                    extra="database",
                    max_turns=12,
                    waits=True,
                    solver="oracle",
                )
            )
    register(
        EnvSpec(
            "mcp:Postgres-v0",
            "gem.envs.mcp_postgres:McpPostgresEnv",
            extra="mcp,postgres",
            max_turns=30,
            deterministic=False,  # the tasks are; names of roles and timings in what is shown are not
            forkable=False,
            waits=True,
            solver="exact",
        )
    )
    register_family(REASONING_GYM)
    register_family(GYMNASIUM)
    register_family(TEXTARENA)


def _solver(solver: Solver | float) -> dict[str, Any]:
    """Return the claims that a row's last column makes."""
    if isinstance(solver, float):
        return {"solver": "measured", "solver_rate": solver}
    return {"solver": solver}
