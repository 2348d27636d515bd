"""Registry entries of the bridges: one family each, with names known without an import."""

from __future__ import annotations

from typing import Any

from gem.registry import Family
from gem.specs import Needs

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
""".split()  # noqa: SIM905  a hundred quoted names would be long
"""The data sets of reasoning-gym 0.1.25 that need no configuration; others come from the package."""

RG_UNSOLVED = ("boxnet", "rush_hour")
"""Data sets that give no right answer."""

REASONING_GYM = Family(
    prefix="rg",
    entry_point="gem.envs.bridges.reasoning_gym:ReasoningGymEnv",
    names=tuple(RG_NAMES),
    more="gem.envs.bridges.reasoning_gym:names",
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
"""The turn budget that the task states, and the win rate of optimal play over seeds 0 to 499."""

GYMNASIUM = Family(
    prefix="gymnasium",
    entry_point="gem.envs.bridges.gymnasium:GymnasiumEnv",
    names=tuple(GYMNASIUM_TOY_TEXT),
    extra="gymnasium",
    package="gymnasium",
    exceptions={
        name: {"max_turns": turns, "solver": "measured", "solver_rate": rate}
        for name, (turns, rate) in GYMNASIUM_TOY_TEXT.items()
    },
)


BABYAI_NAMES = """
GoToRedBallGrey-v0 GoToRedBall-v0 GoToRedBallNoDists-v0 GoToObj-v0 GoToObjS4-v0 GoToObjS6-v1
GoToLocal-v0 GoToLocalS5N2-v0 GoToLocalS6N2-v0 GoToLocalS6N3-v0 GoToLocalS6N4-v0 GoToLocalS7N4-v0
GoToLocalS7N5-v0 GoToLocalS8N2-v0 GoToLocalS8N3-v0 GoToLocalS8N4-v0 GoToLocalS8N5-v0 GoToLocalS8N6-v0
GoToLocalS8N7-v0 GoTo-v0 GoToOpen-v0 GoToObjMaze-v0 GoToObjMazeOpen-v0 GoToObjMazeS4R2-v0
GoToObjMazeS4-v0 GoToObjMazeS5-v0 GoToObjMazeS6-v0 GoToObjMazeS7-v0 GoToImpUnlock-v0 GoToSeq-v0
GoToSeqS5R2-v0 GoToRedBlueBall-v0 GoToDoor-v0 GoToObjDoor-v0 Open-v0 OpenRedDoor-v0 OpenDoor-v0
OpenDoorColor-v0 OpenDoorLoc-v0 OpenTwoDoors-v0 OpenRedBlueDoors-v0 OpenDoorsOrderN2-v0
OpenDoorsOrderN4-v0 Pickup-v0 UnblockPickup-v0 PickupLoc-v0 PickupDist-v0 PickupAbove-v0 PutNextLocal-v0
PutNextLocalS5N3-v0 PutNextLocalS6N4-v0 PutNextS4N1-v0 PutNextS5N2-v0 PutNextS5N1-v0 PutNextS6N3-v0
PutNextS7N4-v0 PutNextS5N2Carrying-v0 PutNextS6N3Carrying-v0 PutNextS7N4Carrying-v0 Unlock-v0
UnlockLocal-v0 UnlockLocalDist-v0 KeyInBox-v0 UnlockPickup-v0 UnlockPickupDist-v0 BlockedUnlockPickup-v0
UnlockToUnlock-v0 ActionObjDoor-v0 FindObjS5-v0 FindObjS6-v0 FindObjS7-v0 KeyCorridor-v0
KeyCorridorS3R1-v0 KeyCorridorS3R2-v0 KeyCorridorS3R3-v0 KeyCorridorS4R3-v0 KeyCorridorS5R3-v0
KeyCorridorS6R3-v0 OneRoomS8-v0 OneRoomS12-v0 OneRoomS16-v0 OneRoomS20-v0 MoveTwoAcrossS5N2-v0
MoveTwoAcrossS8N9-v0 Synth-v0 SynthS5R2-v0 SynthLoc-v0 SynthSeq-v0 MiniBossLevel-v0 BossLevel-v0
BossLevelNoUnlock-v0
""".split()  # noqa: SIM905
"""The BabyAI levels of MiniGrid 3.2.0, but for those that stop with an error at a wrong move."""

BABYAI_UNSOLVED = tuple(
    """
GoToImpUnlock-v0 KeyInBox-v0 PutNextS5N2Carrying-v0 PutNextS6N3Carrying-v0
PutNextS7N4Carrying-v0 SynthS5R2-v0 Unlock-v0 UnlockToUnlock-v0
""".split()  # noqa: SIM905
)
"""Levels where the package's bot fails or plans without end, on some seeds at least."""

MINIGRID_NAMES = """
BlockedUnlockPickup-v0 LavaCrossingS9N1-v0 LavaCrossingS9N2-v0 LavaCrossingS9N3-v0 LavaCrossingS11N5-v0
SimpleCrossingS9N1-v0 SimpleCrossingS9N2-v0 SimpleCrossingS9N3-v0 SimpleCrossingS11N5-v0 DistShift1-v0
DistShift2-v0 DoorKey-5x5-v0 DoorKey-6x6-v0 DoorKey-8x8-v0 DoorKey-16x16-v0 Dynamic-Obstacles-5x5-v0
Dynamic-Obstacles-Random-5x5-v0 Dynamic-Obstacles-6x6-v0 Dynamic-Obstacles-Random-6x6-v0
Dynamic-Obstacles-8x8-v0 Dynamic-Obstacles-16x16-v0 Empty-5x5-v0 Empty-Random-5x5-v0 Empty-6x6-v0
Empty-Random-6x6-v0 Empty-8x8-v0 Empty-16x16-v0 Fetch-5x5-N2-v0 Fetch-6x6-N2-v0 Fetch-8x8-N3-v0
FourRooms-v0 GoToDoor-5x5-v0 GoToDoor-6x6-v0 GoToDoor-8x8-v0 GoToObject-6x6-N2-v0 GoToObject-8x8-N2-v0
KeyCorridorS3R1-v0 KeyCorridorS3R2-v0 KeyCorridorS3R3-v0 KeyCorridorS4R3-v0 KeyCorridorS5R3-v0
KeyCorridorS6R3-v0 LavaGapS5-v0 LavaGapS6-v0 LavaGapS7-v0 LockedRoom-v0 MemoryS17Random-v0
MemoryS13Random-v0 MemoryS13-v0 MemoryS11-v0 MemoryS9-v0 MemoryS7-v0 MultiRoom-N2-S4-v0
MultiRoom-N4-S5-v1 MultiRoom-N6-v0 ObstructedMaze-1Dl-v0 ObstructedMaze-1Dlh-v0 ObstructedMaze-1Dlhb-v0
ObstructedMaze-2Dl-v0 ObstructedMaze-2Dlh-v0 ObstructedMaze-2Dlhb-v1 ObstructedMaze-1Q-v1
ObstructedMaze-2Q-v1 ObstructedMaze-Full-v1 Playground-v0 PutNear-6x6-N2-v0 PutNear-8x8-N3-v0
RedBlueDoors-6x6-v0 RedBlueDoors-8x8-v0 Unlock-v0 UnlockPickup-v0
""".split()  # noqa: SIM905
"""The other environments of MiniGrid 3.2.0 in their newest version, but for those that need more packages."""

MINIGRID_FEW = tuple(
    """
LavaCrossingS9N1-v0 LavaCrossingS9N2-v0 LavaCrossingS9N3-v0 SimpleCrossingS9N1-v0 SimpleCrossingS9N2-v0
SimpleCrossingS9N3-v0 DistShift1-v0 DistShift2-v0 DoorKey-5x5-v0 DoorKey-6x6-v0 Dynamic-Obstacles-5x5-v0
Dynamic-Obstacles-6x6-v0 Empty-5x5-v0 Empty-Random-5x5-v0 Empty-6x6-v0 Empty-Random-6x6-v0 Empty-8x8-v0
Empty-16x16-v0 KeyCorridorS3R1-v0 LavaGapS5-v0 LavaGapS6-v0 LavaGapS7-v0 MemoryS17Random-v0
MemoryS13Random-v0 MemoryS13-v0 MemoryS11-v0 MemoryS9-v0 MemoryS7-v0
""".split()  # noqa: SIM905
)
"""Those with so few beginnings that they cannot be split."""

BABYAI = Family(
    prefix="babyai",
    entry_point="gem.envs.bridges.minigrid:BabyAIEnv",
    names=tuple(BABYAI_NAMES),
    extra="gymnasium",
    package="gymnasium",
    world="minigrid",
    claims={"splits": ("train", "test"), "solver": "measured", "solver_rate": 1.0},
    exceptions={name: {"solver": "none", "solver_rate": None} for name in BABYAI_UNSOLVED},
)

MINIGRID = Family(
    prefix="minigrid",
    entry_point="gem.envs.bridges.minigrid:MiniGridEnv",
    names=tuple(MINIGRID_NAMES),
    extra="gymnasium",
    package="gymnasium",
    world="minigrid",
    claims={"splits": ("train", "test")},
    exceptions={name: {"splits": ()} for name in MINIGRID_FEW},
)

AGENTDOJO_SUITES = ("banking", "slack", "travel", "workspace")
"""The suites of AgentDojo; each has an id with attacks too."""

AGENTDOJO = Family(
    prefix="agentdojo",
    entry_point="gem.envs.bridges.agentdojo:AgentDojoEnv",
    names=tuple(f"{suite}{attacked}" for suite in AGENTDOJO_SUITES for attacked in ("", "-attacked")),
    extra="agentdojo",
    package="deepdiff",
    world="agentdojo",
    claims={"max_turns": 15, "splits": ("train", "test"), "solver": "oracle"},
    exceptions={f"{suite}-attacked": {"source": f"agentdojo:{suite}"} for suite in AGENTDOJO_SUITES},
)


TAU2_DOMAINS = ("airline", "retail", "telecom")
"""The domains of tau2-bench that have a customer; each has an id where a script is the customer."""

TAU2_DISPUTED = {
    "airline": tuple(map(str, (0, 1, 4, 5, 6, 10, 13, 26, 28, 31, 34, 36, 41, 43, *range(45, 50)))),
    "retail": ("10", "12", "25", "50", "57", "65", "105"),
}
"""The tasks that pay for doing nothing, by domain: their references change nothing, in retail's 12 and 105
because a call of the reference fails, and nothing has to be said."""

TAU2 = Family(
    prefix="tau2",
    entry_point="gem.envs.bridges.tau2:make_env",
    names=("telecom-solo", *TAU2_DOMAINS, *(f"{domain}-scripted" for domain in TAU2_DOMAINS)),
    extra="tau2",
    package="loguru",
    world="tau2",
    claims={"splits": ("train", "test"), "solver": "oracle", "max_turns": 100},
    exceptions={
        **{domain: {"seats": ("agent", "user")} for domain in TAU2_DOMAINS},
        **{
            f"{domain}-scripted": {"max_turns": 99, "source": f"tau2:{domain}"}  # the customer begins
            for domain in TAU2_DOMAINS
        },
        "telecom-solo": {"source": "tau2:telecom"},
    },
)

BFCL_NAMES = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")

BFCL_CALLS = tuple(
    """
simple_python simple_java simple_javascript multiple parallel parallel_multiple irrelevance live_simple
live_multiple live_parallel live_parallel_multiple live_relevance live_irrelevance
""".split()  # noqa: SIM905
)
"""The categories with one turn."""

BFCL_UNSOLVED = tuple(
    """
simple_java_36 simple_java_64 simple_java_65 live_simple_106-63-0 live_simple_112-68-0
live_multiple_862-181-3 live_multiple_964-207-0
""".split()  # noqa: SIM905
)
"""Requests where the package's checker accepts no answer: the reference has a value of another type than the
function, or an argument that the function does not have."""

BFCL_DISPUTED = (*(f"{name}_187" for name in BFCL_NAMES), "multi_turn_miss_func_49", *BFCL_UNSOLVED)
"""Tasks that cannot be solved from what is shown: in conversation 187 the state has to hold a sentence that
only the reference words so; in 49 the reference calls a function before it is shown."""

BFCL = Family(
    prefix="bfcl",
    entry_point="gem.envs.bridges.bfcl:BfclEnv",
    names=(*BFCL_NAMES, *BFCL_CALLS),
    extra="math",
    package="mpmath",
    world="bfcl",
    claims={"splits": ("train", "test"), "solver": "oracle"},
    exceptions={
        **{name: {"source": "bfcl:multi_turn_base"} for name in BFCL_NAMES},
        **{
            name: {"entry_point": "gem.envs.bridges.bfcl_calls:BfclCallsEnv", "max_turns": 1}
            for name in BFCL_CALLS
        },
    },
)
"""The categories of the Berkeley Function-Calling Leaderboard v4."""

MINIWOB_NAMES = """
ascending-numbers bisect-angle book-flight book-flight-nodelay button-delay buy-ticket chase-circle
choose-date choose-date-easy choose-date-medium choose-date-nodelay choose-list circle-center click-button
click-button-sequence click-checkboxes click-checkboxes-large click-checkboxes-soft click-checkboxes-transfer
click-collapsible click-collapsible-2 click-collapsible-2-nodelay click-collapsible-nodelay click-color
click-dialog click-dialog-2 click-link click-menu click-menu-2 click-option click-pie click-pie-nodelay
click-scroll-list click-shades click-shape click-tab click-tab-2 click-tab-2-easy click-tab-2-hard
click-tab-2-medium click-test click-test-2 click-test-transfer click-widget copy-paste copy-paste-2
count-shape count-sides daily-calendar drag-box drag-circle drag-cube drag-items drag-items-grid drag-shapes
drag-shapes-2 drag-single-shape drag-sort-numbers draw-circle draw-line email-inbox email-inbox-delete
email-inbox-forward email-inbox-forward-nl email-inbox-forward-nl-turk email-inbox-important
email-inbox-nl-turk email-inbox-noscroll email-inbox-reply email-inbox-star-reply enter-date enter-password
enter-text enter-text-2 enter-text-dynamic enter-time find-greatest find-midpoint find-word focus-text
focus-text-2 form-sequence form-sequence-2 form-sequence-3 generate-number grid-coordinate guess-number
highlight-text highlight-text-2 hot-cold hover-shape identify-shape login-user login-user-popup moving-items
multi-layouts multi-orderings navigate-tree number-checkboxes odd-or-even order-food phone-book read-table
read-table-2 resize-textarea right-angle scroll-text scroll-text-2 search-engine sign-agreement simon-says
simple-algebra simple-arithmetic social-media social-media-all social-media-some stock-market terminal
text-editor text-transform tic-tac-toe unicode-test use-autocomplete use-autocomplete-nodelay use-colorwheel
use-colorwheel-2 use-slider use-slider-2 use-spinner visual-addition
""".split()  # noqa: SIM905
"""The pages of miniwob 1.1.0."""

MINIWOB_FEW = tuple(
    """
button-delay choose-date-easy click-button-sequence click-menu-2 click-test click-test-2
click-test-transfer count-sides drag-box drag-cube find-greatest focus-text focus-text-2 form-sequence-3
generate-number grid-coordinate guess-number hot-cold number-checkboxes simon-says terminal tic-tac-toe
use-colorwheel use-colorwheel-2 use-spinner
""".split()  # noqa: SIM905
)
"""Pages with so few tasks that they cannot be split."""

MINIWOB_SOLVED = tuple(
    """
ascending-numbers button-delay buy-ticket choose-list click-button click-button-sequence click-checkboxes
click-checkboxes-large click-checkboxes-transfer click-collapsible click-collapsible-2
click-collapsible-2-nodelay click-collapsible-nodelay click-color click-dialog click-dialog-2 click-link
click-menu click-option click-scroll-list click-shades click-shape click-tab click-tab-2 click-tab-2-easy
click-tab-2-hard click-tab-2-medium click-test click-test-2 click-test-transfer click-widget copy-paste
copy-paste-2 count-shape email-inbox email-inbox-delete email-inbox-forward email-inbox-important
email-inbox-noscroll email-inbox-reply email-inbox-star-reply enter-date enter-password enter-text
enter-text-2 enter-text-dynamic enter-time find-word focus-text focus-text-2 grid-coordinate highlight-text
highlight-text-2 identify-shape login-user multi-layouts multi-orderings navigate-tree odd-or-even
phone-book read-table read-table-2 scroll-text scroll-text-2 search-engine sign-agreement simple-algebra
simple-arithmetic social-media social-media-all social-media-some text-transform unicode-test
use-autocomplete use-autocomplete-nodelay use-spinner visual-addition
""".split()  # noqa: SIM905
)
"""Pages that have an expert."""

MINIWOB_RELOADED = tuple(
    """
book-flight book-flight-nodelay choose-date choose-date-easy choose-date-medium click-pie focus-text-2
form-sequence-3 scroll-text scroll-text-2 stock-market use-autocomplete use-autocomplete-nodelay
""".split()  # noqa: SIM905
)
"""Pages where an episode leaves something for the next, unless the page is loaded again."""

MINIWOB = Family(
    prefix="miniwob",
    entry_point="gem.envs.bridges.miniwob:MiniWobEnv",
    names=tuple(MINIWOB_NAMES),
    extra="browser",
    package="playwright",
    world="miniwob",
    claims={"max_turns": 20, "waits": True, "forkable": False},
    exceptions={
        name: {
            **({} if name in MINIWOB_FEW else {"splits": ("train", "test")}),
            **({"solver": "measured", "solver_rate": 1.0} if name in MINIWOB_SOLVED else {}),
            **({"deterministic": False} if name == "form-sequence-3" else {}),  # a list under the mouse
        }
        for name in MINIWOB_NAMES
    },
    also="gem.envs.kit.browser:find_chromium",
)
"""Pages of MiniWoB++; the experts were tried on 100 seeds that nobody looked at while writing them."""


BROWSER = Family(
    prefix="browser",
    entry_point="gem.envs.kit.page_folder:PageFolderEnv",
    names=(),
    extra="browser",
    package="playwright",
    claims={"max_turns": 20, "waits": True, "forkable": False},
    look="gem.envs.kit.page_folder:claims_of",
    also="gem.envs.kit.browser:find_chromium",
)
"""Pages of one's own; a name is the path of a folder."""

REMOTE = Family(
    prefix="remote",
    entry_point="gem.envs.bridges.remote:RemoteEnv",
    names=(),
    more="gem.envs.bridges.addresses:addresses",
    extra="serve",
    package="websockets",
    claims={"waits": True},
)

OPENENV = Family(
    prefix="openenv",
    entry_point="gem.envs.bridges.openenv:OpenEnvEnv",
    names=(),
    more="gem.envs.bridges.addresses:addresses",
    extra="serve",
    package="websockets",
    claims={"waits": True, "deterministic": False, "forkable": False},
)


VERIFIERS = Family(
    prefix="verifiers",
    entry_point="gem.envs.bridges.verifiers:VerifiersEnv",
    names=(),
    more="gem.envs.bridges.addresses:addresses",
    extra="verifiers",
    package="verifiers",
    claims={"waits": True, "deterministic": False, "forkable": False},
)
"""Installed tasksets of verifiers; a name is that of a package."""

HARBOR = Family(
    prefix="harbor",
    entry_point="gem.envs.terminal.task_set:HarborEnv",
    names=(),
    extra="terminal",
    claims={
        **{"max_turns": 20, "waits": True, "deterministic": False, "forkable": False},
        "needs": Needs(sandbox=True),
    },
    look="gem.envs.terminal.task_set:solver_claim",
)
"""Task folders in the layout of Harbor; a name is the path of a folder or of a registry.json."""

REPO = Family(
    prefix="repo",
    entry_point="gem.envs.terminal.repair:RepairEnv",
    names=("arpeggio", "automat", "boolean", "geographiclib", "pyflakes", "toolz"),
    extra="repo",
    package="pytest",
    world="repo",
    claims={
        **{"max_turns": 30, "waits": True, "deterministic": False, "forkable": False},
        **{"splits": ("train", "test"), "solver": "oracle"},
        "needs": Needs(sandbox=True),
    },
)
"""Packages of others with a defect each."""

TEXTWORLD_SETTINGS: dict[str, dict[str, Any]] = {
    "simple": {"rewards": "dense", "goal": "detailed", "test": False},
    "coin_collector": {"level": 5},
    "treasure_hunter": {"level": 5},
    "cooking": {"recipe": 2, "take": 2, "go": 6, "open": True, "cook": True, "cut": False},
    "custom": {"nb_rooms": 5, "nb_objects": 10, "quest_length": 5},
}
"""The kinds of TextWorld's games, and the settings of each: the four challenges, and its own generator."""

TEXTWORLD = Family(
    prefix="textworld",
    entry_point="gem.envs.bridges.textworld:TextWorldEnv",
    names=tuple(TEXTWORLD_SETTINGS),
    extra="textworld",
    package="networkx",
    world="textworld",
    claims={"max_turns": 50, "splits": ("train", "test"), "solver": "oracle"},
)

OPENSPIEL_GAMES = {"kuhn_poker": 3, "leduc_poker": 8, "tic_tac_toe": 9}
"""The games of OpenSpiel that are played here, whose values are known, and the most turns of each."""

OPENSPIEL = Family(
    prefix="openspiel",
    entry_point="gem.envs.bridges.openspiel:OpenSpielGame",
    names=tuple(OPENSPIEL_GAMES),
    extra="openspiel",
    package="pyspiel",
    claims={"seats": ("player_0", "player_1")},
    exceptions={name: {"max_turns": turns} for name, turns in OPENSPIEL_GAMES.items()},
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
"""The games of TextArena 0.7.4 by number of players; others come from the package."""

TEXTARENA = Family(
    prefix="ta",
    entry_point="gem.envs.bridges.textarena:make_game",
    names=tuple(name for games in TEXTARENA_GAMES.values() for name in games.split()),
    more="gem.envs.bridges.textarena:names",
    missing="gem.envs.bridges.textarena:find_missing",
    extra="textarena",
    package="textarena",
    exceptions={
        name: {"seats": tuple(f"player_{i}" for i in range(players))}
        for players, games in TEXTARENA_GAMES.items()
        if players > 1
        for name in games.split()
    },
)

FAMILIES = (
    REASONING_GYM,
    GYMNASIUM,
    AGENTDOJO,
    BABYAI,
    MINIGRID,
    BFCL,
    TAU2,
    MINIWOB,
    BROWSER,
    TEXTARENA,
    REMOTE,
    OPENENV,
    VERIFIERS,
    HARBOR,
    REPO,
    TEXTWORLD,
    OPENSPIEL,
)
