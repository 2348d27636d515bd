"""The hard problems: search, dynamic programming, graphs; a simple-minded solution is wrong or too slow."""

from random import Random

from gem.envs.code.basics.problem import function, grid, letters, numbers, program, words


def _expression(r: Random, size: int) -> tuple[str]:
    text = str(r.randint(0, 20))
    for _ in range(size):
        text += f" {r.choice('+-*')} ({r.randint(0, 9)}{r.choice('+-*')}-{r.randint(0, 9)})"
    return (text,)


def _sentence(r: Random, size: int) -> tuple[str, list[str]]:
    known = words(r, 6, 3, "ab")
    return "".join(r.choice(known) for _ in range(size)), known[1:]


def _power(r: Random, size: int) -> tuple[list[list[int]], int, int]:
    side = r.randint(1, 4)
    return [numbers(r, side, 0, 20) for _ in range(side)], r.randint(0, 10**size), r.randint(2, 10**6)


def _pattern(r: Random, size: int) -> tuple[str, str]:
    units = [r.choice("ab.") + "*" * (r.random() < 0.4) for _ in range(min(size, 9))]
    text = "".join(unit[0] * (r.randint(0, 3) if unit[1:] else 1) for unit in units).replace(
        ".", r.choice("ab")
    )
    return "".join(units), text + "a" * (r.random() < 0.4)


def _graph(r: Random, size: int) -> tuple[int, list[list[int]]]:
    count = min(size + 1, 14)
    return count, [[a, b] for a in range(count) for b in range(a) if r.random() < 3.5 / count]


def _maze(r: Random, size: int) -> str:
    rows, columns = r.randint(1, min(size, 25)), r.randint(2, min(size, 25) + 1)
    free = letters(r, rows * columns - 2, "...#")
    cells = "".join(r.sample(["S", "E", *free], rows * columns))
    lines = [cells[i * columns : (i + 1) * columns] for i in range(rows)]
    return "".join(f"{line}\n" for line in (f"{rows} {columns}", *lines))


def _rules(r: Random, size: int) -> str:
    ranked = r.sample(range(1, size + 1), size)
    pairs = [sorted(numbers(r, 2, 0, size - 1)) for _ in range(size)]
    rules = [f"{ranked[a]} {ranked[b]}" for a, b in pairs if a < b]
    if rules and r.random() < 0.25:
        first, second = r.choice(rules).split()
        rules.append(f"{second} {first}")
    return "".join(f"{line}\n" for line in (f"{size} {len(rules)}", *rules))


def _board(r: Random, size: int) -> str:
    rows, columns = numbers(r, 2, 1, min(size, 12))
    return "".join(
        f"{line}\n" for line in (f"{rows} {columns} {r.randint(1, 5)}", *grid(r, rows, columns, "#.."))
    )


@function(
    "hard",
    examples=[(("kitten", "sitting"), 3), (("", "abc"), 3)],
    edges=[("", ""), ("same", "same"), ("ab", "ba"), ("abcdef", "azced"), ("a" * 150, "b" * 150)],
    draw=lambda r, n: (letters(r, n, "abc"), letters(r, n + r.randint(-n // 2, n // 2), "abc")),
)
def edit_distance(source: str, target: str) -> int:
    """Return the least number of edits that turn one text into another.

    An edit inserts a character, deletes one, or replaces one by another. Texts have up to 200 characters.
    """
    row = list(range(len(target) + 1))
    for i, a in enumerate(source, 1):
        previous, row = row, [i]
        for j, b in enumerate(target, 1):
            row.append(min(previous[j] + 1, row[-1] + 1, previous[j - 1] + (a != b)))
    return row[-1]


@function(
    "hard",
    examples=[(([10, 9, 2, 5, 3, 7, 101, 18],), 4), (([7, 7, 7],), 1)],
    edges=[([],), ([1],), ([3, 2, 1],), (list(range(3000)),), ([1, 3, 2, 3, 4],)],
    draw=lambda r, n: (numbers(r, 20 * n, 0, 30 * n),),
)
def longest_rising_subsequence(values: list[int]) -> int:
    """Return the length of the longest strictly rising subsequence of a list.

    A subsequence keeps the order of the list and may leave out any numbers. The list may be empty and has
    up to 3000 numbers.
    """
    from bisect import bisect_left

    lowest_ends: list[int] = []
    for value in values:
        place = bisect_left(lowest_ends, value)
        lowest_ends[place : place + 1] = [value]
    return len(lowest_ends)


@function(
    "hard",
    examples=[((10, [[5, 10], [4, 40], [6, 30]]), 70), ((3, [[4, 9]]), 0)],
    edges=[
        (0, [[1, 1]]),
        (5, []),
        (6, [[3, 5], [3, 5], [4, 9]]),
        (4, [[1, 3]]),
        (50, [[10, 60], [20, 100], [30, 120]]),
    ],
    draw=lambda r, n: (5 * n, [[r.randint(1, 12), r.randint(1, 40)] for _ in range(n)]),
)
def knapsack(capacity: int, items: list[list[int]]) -> int:
    """Return the greatest total value of items that fit into a knapsack.

    Every item is [weight, value], both positive, and can be taken once or not at all. The weights taken
    add up to at most the capacity. There are up to 40 items, and the capacity is at most 200.
    """
    best = [0] * (capacity + 1)
    for weight, value in items:
        for room in range(capacity, weight - 1, -1):
            best[room] = max(best[room], best[room - weight] + value)
    return best[capacity]


@function(
    "hard",
    examples=[((5, [1, 2, 5]), 4), ((3, [2]), 0)],
    edges=[(0, [7]), (10, [10]), (7, []), (100, [1, 5, 10, 25, 50]), (1000, [1, 2, 5, 10, 20, 50, 100, 200])],
    draw=lambda r, n: (r.randint(1, 12 * n), sorted(set(numbers(r, min(n, 7), 2, 20)))),
)
def ways_to_pay(amount: int, coins: list[int]) -> int:
    """Return in how many ways an amount can be paid with coins of given values.

    There are as many coins of every value as needed. Ways that differ only in the order of the coins are
    the same. The values are positive and distinct; an amount of 0 can be paid in one way, with no coins.
    The amount is at most 1000.
    """
    ways = [1] + [0] * amount
    for coin in coins:
        for total in range(coin, amount + 1):
            ways[total] += ways[total - coin]
    return ways[amount]


@function(
    "hard",
    examples=[(("2*(3+4)-5",), 9), (("-(1 - 2) * 3",), 3)],
    edges=[("7",), ("((8))",), ("10-3-2",), ("2+3*4",), ("2*-3",), ("--4",), ("1-(-(-1))",), (" 12 * 12 ",)],
    draw=_expression,
)
def evaluate(expression: str) -> int:
    """Return the value of an arithmetic expression.

    It holds whole numbers, +, - and *, parentheses and spaces. * binds closer than + and -, operators of
    the same rank are applied from left to right, and a minus sign may stand before any operand: "2*-3" is
    -6 and "--4" is 4. The expression is well formed.
    """
    import re

    tokens = re.findall(r"\d+|[-+*()]", expression)
    place = 0

    def operand() -> int:
        nonlocal place
        token = tokens[place]
        place += 1
        if token == "-":
            return -operand()
        if token == "(":
            value = total()
            place += 1
            return value
        return int(token)

    def product() -> int:
        nonlocal place
        value = operand()
        while place < len(tokens) and tokens[place] == "*":
            place += 1
            value *= operand()
        return value

    def total() -> int:
        nonlocal place
        value = product()
        while place < len(tokens) and tokens[place] in "+-":
            sign = 1 if tokens[place] == "+" else -1
            place += 1
            value += sign * product()
        return value

    return total()


@function(
    "hard",
    examples=[((4,), 2), ((6,), 4)],
    edges=[(1,), (2,), (3,), (5,), (7,), (8,), (9,)],
    draw=lambda r, n: (min(n, 8),),
)
def queens_arrangements(size: int) -> int:
    """Return in how many ways as many queens as rows can stand on a square board without attacking.

    The board has size rows and columns, with size from 1 to 9. Two queens attack each other in the same
    row, column or diagonal. Arrangements that are rotations or reflections of each other are different.
    """

    def place(row: int, columns: int, rising: int, falling: int) -> int:
        if row == size:
            return 1
        free = ~(columns | rising | falling) & ((1 << size) - 1)
        found = 0
        while free:
            bit = free & -free
            free -= bit
            found += place(row + 1, columns | bit, (rising | bit) << 1, (falling | bit) >> 1)
        return found

    return place(0, 0, 0, 0)


@function(
    "hard",
    examples=[(("applepie", ["apple", "pie"]), True), (("catsand", ["cat", "cats", "sa"]), False)],
    edges=[
        ("", ["a"]),
        ("aaa", ["aa"]),
        ("abcd", ["a", "abc", "b", "cd"]),
        ("a" * 60 + "b", ["a", "aa", "aaa"]),
    ],
    draw=_sentence,
)
def can_be_split(text: str, vocabulary: list[str]) -> bool:
    """Return whether a text is a sequence of words of a vocabulary, each used as often as wanted.

    The empty text is the sequence of no words. The words are not empty.
    """
    reachable = [True] + [False] * len(text)
    for end in range(1, len(text) + 1):
        reachable[end] = any(reachable[end - len(word)] for word in vocabulary if text[:end].endswith(word))
    return reachable[-1]


@function(
    "hard",
    examples=[(("ADOBECODEBANC", "ABC"), "BANC"), (("aa", "aaa"), "")],
    edges=[("a", "a"), ("ab", "b"), ("bba", "ab"), ("abcabc", "cab"), ("xaay", "aa"), ("abba", "ab")],
    draw=lambda r, n: (letters(r, 4 * n, "abcd"), letters(r, r.randint(1, 4), "abcd")),
)
def smallest_window(text: str, needed: str) -> str:
    """Return the shortest contiguous part of a text that contains all the characters needed.

    A character that occurs several times in needed, which is not empty, must occur at least as often in
    the part. Of several shortest parts the leftmost is wanted; where there is none, the empty text.
    """
    missing: dict[str, int] = {}
    for character in needed:
        missing[character] = missing.get(character, 0) + 1
    lacking = len(needed)
    best, start = "", 0
    for end, character in enumerate(text, 1):
        lacking -= missing.get(character, 0) > 0
        missing[character] = missing.get(character, 0) - 1
        while lacking == 0:
            if not best or end - start < len(best):
                best = text[start:end]
            missing[text[start]] += 1
            lacking += missing[text[start]] > 0
            start += 1
    return best


@function(
    "hard",
    examples=[(([5, 2, 8, 1],), [5.0, 3.5, 5.0, 3.5]), (([],), [])],
    edges=[([7],), ([1, 1],), ([-3, -4],), ([3, 1, 2],)],
    draw=lambda r, n: (numbers(r, 5 * n, -100, 100),),
)
def running_medians(values: list[int]) -> list[float]:
    """Return, for each position of a list, the median of the numbers up to and including that position.

    The median of an odd number of numbers is the middle one in ascending order, of an even number the mean
    of the two in the middle.
    """
    from bisect import insort

    ordered: list[int] = []
    medians = []
    for value in values:
        insort(ordered, value)
        half = len(ordered) // 2
        medians.append(float(ordered[half]) if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2)
    return medians


@function(
    "hard",
    examples=[
        (
            (2, [["put", 1, 10], ["put", 2, 20], ["get", 1], ["put", 3, 30], ["get", 2], ["get", 3]]),
            [10, -1, 30],
        )
    ],
    edges=[
        (1, [["get", 5]]),
        (1, [["put", 1, 1], ["put", 1, 2], ["get", 1]]),
        (2, [["put", 1, 1], ["put", 2, 2], ["put", 1, 5], ["put", 3, 3], ["get", 1], ["get", 2]]),
        (2, []),
    ],
    draw=lambda r, n: (
        r.randint(1, 4),
        [
            ["get", r.randint(1, 6)] if r.random() < 0.5 else ["put", r.randint(1, 6), r.randint(0, 99)]
            for _ in range(3 * n)
        ],
    ),
)
def recent_cache(capacity: int, operations: list[list[int | str]]) -> list[int]:
    """Return what the reads of a cache give that forgets the entry which was not used for the longest time.

    Operations are ["put", key, value] and ["get", key] with integers that are at least 0. A put stores the
    value under the key, replacing an older value; where the cache would then hold more than capacity keys
    (at least 1), the key whose last use, by put or by get, is furthest back is forgotten. A get that finds
    its key is a use of it. The answer lists the result of each get in order: the value, or -1 where the key
    is not there.
    """
    stored: dict[object, object] = {}
    read: list[object] = []
    for verb, key, *rest in operations:
        if verb == "put":
            stored.pop(key, None)
            stored[key] = rest[0]
            if len(stored) > capacity:
                stored.pop(next(iter(stored)))
        elif key in stored:
            stored[key] = stored.pop(key)
            read.append(stored[key])
        else:
            read.append(-1)
    return read  # type: ignore[return-value]


@function(
    "hard",
    examples=[(("babad",), "bab"), (("abccbd",), "bccb")],
    edges=[("",), ("a",), ("ac",), ("aaaa",), ("abcda",), ("xabbaxyzzy",)],
    draw=lambda r, n: (letters(r, 3 * n, "abc"[: r.randint(2, 3)]),),
)
def longest_palindrome(text: str) -> str:
    """Return the longest contiguous part of a text that reads the same in both directions.

    Of several longest ones the leftmost is wanted. Capitals differ from small letters. The text may be
    empty and has up to 200 characters.
    """
    best = ""
    for middle in range(len(text)):
        for low, high in ((middle, middle), (middle, middle + 1)):
            while low >= 0 and high < len(text) and text[low] == text[high]:
                low -= 1
                high += 1
            if high - low - 1 > len(best):
                best = text[low + 1 : high]
    return best


@function(
    "hard",
    examples=[(([[1, 1], [1, 0]], 10, 1000), [[89, 55], [55, 34]]), (([[2]], 0, 7), [[1]])],
    edges=[
        ([[3]], 5, 1),
        ([[3]], 0, 1),
        ([[0, 1], [1, 0]], 10**15 + 1, 97),
        ([[1, 1], [1, 0]], 10**18, 10**9 + 7),
    ],
    draw=_power,
)
def matrix_power(matrix: list[list[int]], exponent: int, modulus: int) -> list[list[int]]:
    """Return a power of a square matrix, every number reduced to the remainder by the modulus.

    The exponent is at least 0 and may be huge; the power 0 is the identity matrix, also reduced. The modulus
    is at least 1, and remainders are from 0 to modulus - 1.
    """
    size = range(len(matrix))

    def product(a: list[list[int]], b: list[list[int]]) -> list[list[int]]:
        return [[sum(a[i][k] * b[k][j] for k in size) % modulus for j in size] for i in size]

    result = [[int(i == j) % modulus for j in size] for i in size]
    while exponent:
        if exponent % 2:
            result = product(result, matrix)
        matrix = product(matrix, matrix)
        exponent //= 2
    return result


@function(
    "hard",
    examples=[(([2, 4, 1, 3, 5],), 3), (([1, 2, 3],), 0)],
    edges=[([],), ([1, 1],), ([3, 2, 1],), (list(range(4000, 0, -1)),)],
    draw=lambda r, n: (numbers(r, 10 * n, 0, 10 * n),),
)
def count_inversions(values: list[int]) -> int:
    """Return how many pairs of positions i < j of a list hold a larger number at i than at j.

    The list has up to 4000 numbers.
    """
    from bisect import bisect_right, insort

    before: list[int] = []
    inversions = 0
    for value in values:
        inversions += len(before) - bisect_right(before, value)
        insort(before, value)
    return inversions


@function(
    "hard",
    examples=[(("a*b.", "aaabc"), True), (("a*b.", "aaab"), False)],
    edges=[
        ("", ""),
        ("", "a"),
        (".*", ""),
        (".*c", "abc"),
        ("a*a", "aaa"),
        ("a.c", "abd"),
        ("x*", "y"),
        ("a*" * 20 + "b", "a" * 40),
    ],
    draw=_pattern,
)
def matches_pattern(pattern: str, text: str) -> bool:
    """Return whether a pattern matches a whole text.

    The pattern consists of small letters, "." and "*". A letter matches itself, "." any one character,
    and "*" makes the one letter or dot directly before it match zero or more times. A "*" never comes first
    or after another "*".
    """
    states = {0}

    def skipping(places: set[int]) -> set[int]:
        reached = set(places)
        for place in range(len(pattern)):
            if place in reached and pattern[place + 1 : place + 2] == "*":
                reached.add(place + 2)
        return reached

    states = skipping(states)
    for character in text:
        moved = set()
        for place in states:
            if place < len(pattern) and pattern[place] in (character, "."):
                moved.add(place if pattern[place + 1 : place + 2] == "*" else place + 1)
        states = skipping(moved)
    return len(pattern) in states


@function(
    "hard",
    examples=[(([0, 1, 0, 2, 1, 0, 1, 3, 2, 1, 2, 1],), 6), (([3, 2, 1],), 0)],
    edges=[([],), ([5],), ([4, 2, 0, 3, 2, 5],), ([2, 0, 2],), ([5, 4, 1, 2],)],
    draw=lambda r, n: (numbers(r, 3 * n, 0, 9),),
)
def trapped_water(heights: list[int]) -> int:
    """Return how much rain stays on a row of columns of width 1.

    Over each column the water stands as high as the lower one of two heights: the greatest at or to the
    left of the column, and the greatest at or to the right of it. The heights are at least 0.
    """
    total = 0
    for place, height in enumerate(heights):
        total += min(max(heights[: place + 1]), max(heights[place:])) - height
    return total


@function(
    "hard",
    examples=[((["10100", "10111", "11111", "10010"],), 6), ((["0"],), 0)],
    edges=[(["1"],), (["11", "11"],), (["010", "111", "010"],), (["1111"],), (["1", "1", "0", "1"],)],
    draw=lambda r, n: (grid(r, r.randint(1, min(n, 15)), r.randint(1, min(n, 15)), "110"),),
)
def largest_rectangle(rows: list[str]) -> int:
    """Return the area of the largest rectangle of ones in a grid.

    The grid is a list of one or more texts of equal length, at least 1, that consist of the characters 0
    and 1. The sides of the rectangle follow rows and columns.
    """
    best = 0
    heights = [0] * len(rows[0])
    for row in rows:
        heights = [height + 1 if cell == "1" else 0 for height, cell in zip(heights, row, strict=True)]
        for left in range(len(heights)):
            lowest = heights[left]
            for right in range(left, len(heights)):
                lowest = min(lowest, heights[right])
                best = max(best, lowest * (right + 1 - left))
    return best


@function(
    "hard",
    examples=[
        ((3, [[0, 1], [1, 2]]), [0, 1, 0]),
        ((4, [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]), None),
    ],
    edges=[
        (1, []),
        (5, [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]]),
        (6, [[0, 3], [1, 4], [2, 5], [0, 4], [0, 5], [1, 3]]),
    ],
    draw=_graph,
    checker="""
        def check(arguments, result, expected):
            count, edges = arguments
            if expected is None or result is None:
                return expected is None and result is None
            if type(result) is not list or len(result) != count:
                return False
            if any(type(colour) is not int or colour not in (0, 1, 2) for colour in result):
                return False
            return all(result[a] != result[b] for a, b in edges)
    """,
)
def three_colours(count: int, edges: list[list[int]]) -> list[int] | None:
    """Return a colouring of a graph with three colours, or None where there is none.

    The nodes are 0 to count - 1 (count is at most 14), the edges pairs of different nodes. The answer lists
    the colour, 0, 1 or 2, of every node, so that the two nodes of every edge differ. Any such colouring is
    right.
    """
    neighbours: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        neighbours[a].append(b)
        neighbours[b].append(a)
    colours = [-1] * count

    def paint(node: int) -> bool:
        if node == count:
            return True
        for colour in range(3):
            if all(colours[near] != colour for near in neighbours[node]):
                colours[node] = colour
                if paint(node + 1):
                    return True
        colours[node] = -1
        return False

    return colours if paint(0) else None


@program(
    "hard",
    examples=[("3 4\nS.#.\n.#..\n...E\n", "5"), ("1 3\nS#E\n", "-1")],
    edges=["1 2\nSE\n", "2 2\nS#\n#E\n", "3 3\nS..\n##.\nE..\n", "2 5\nE...S\n.....\n"],
    draw=_maze,
)
def maze_steps(text: str) -> str:
    """Find the shortest way through a maze.

    Input: the first line holds the number of rows and of columns; then come the rows, of . for free cells,
    # for walls, one S, where the way begins, and one E, where it ends.
    Output: the least number of steps from S to E, where a step leads to a neighbouring cell up, down, left
    or right that is no wall; -1 where there is no way.
    """
    cells = {(i, j): cell for i, row in enumerate(text.splitlines()[1:]) for j, cell in enumerate(row)}
    reached = {place for place, cell in cells.items() if cell == "S"}
    seen = set(reached)
    steps = 0
    while reached:
        if any(cells[place] == "E" for place in reached):
            return str(steps)
        steps += 1
        near = {(i + a, j + b) for i, j in reached for a, b in ((0, 1), (1, 0), (0, -1), (-1, 0))}
        reached = {place for place in near if cells.get(place, "#") != "#"} - seen
        seen |= reached
    return "-1"


@program(
    "hard",
    examples=[("4 4\n1 2 5\n1 3 1\n3 2 2\n2 4 1\n", "0 3 1 4"), ("2 1\n2 1 7\n", "0 -1")],
    edges=["1 0\n", "3 3\n1 2 9\n1 2 4\n2 1 1\n", "3 2\n1 2 0\n2 3 0\n"],
    draw=lambda r, n: "".join(
        [
            f"{n} {3 * n}\n",
            *(f"{r.randint(1, n)} {r.randint(1, n)} {r.randint(0, 20)}\n" for _ in range(3 * n)),
        ]
    ),
)
def cheapest_routes(text: str) -> str:
    """Find the cheapest routes from the first town.

    Input: the first line holds the number n of towns (at least 1) and m of roads (at least 0); each of the
    next m lines a road "a b c", which leads from town a to town b, one way only, at a cost c of at least 0.
    Towns are numbered from 1. There may be several roads between two towns, and roads from a town to itself.
    Output: on one line, for every town in order, the least total cost of a route from town 1 to it, or -1
    where there is none.
    """
    import heapq

    words = [int(word) for word in text.split()]
    count, roads = words[0], words[2:]
    leaving: dict[int, list[tuple[int, int]]] = {}
    for a, b, cost in zip(roads[::3], roads[1::3], roads[2::3], strict=True):
        leaving.setdefault(a, []).append((b, cost))
    cheapest: dict[int, int] = {}
    queue = [(0, 1)]
    while queue:
        total, town = heapq.heappop(queue)
        if town not in cheapest:
            cheapest[town] = total
            for other, cost in leaving.get(town, []):
                heapq.heappush(queue, (total + cost, other))
    return " ".join(str(cheapest.get(town, -1)) for town in range(1, count + 1))


@program(
    "hard",
    examples=[("4 3\n3 1\n2 1\n2 4\n", "2 3 1 4"), ("2 2\n1 2\n2 1\n", "impossible")],
    edges=["1 0\n", "3 0\n", "3 2\n3 1\n3 1\n", "1 1\n1 1\n", "11 2\n11 1\n10 2\n"],
    draw=_rules,
)
def order_of_tasks(text: str) -> str:
    """Put tasks into an order in which each comes after those that it needs.

    Input: the first line holds the number n of tasks (at least 1) and m of rules (at least 0); each of the
    next m lines a rule "a b": task a must come before task b. Tasks are numbered from 1; a rule may be given
    twice.
    Output: all tasks on one line, in an order that keeps every rule. Of several such orders, the one whose
    first task has the smallest number is wanted; where these are equal, whose second task has, and so on.
    Where there is none: the word impossible.
    """
    import heapq

    words = [int(word) for word in text.split()]
    count, rules = words[0], words[2:]
    waiting = dict.fromkeys(range(1, count + 1), 0)
    after: dict[int, list[int]] = {task: [] for task in waiting}
    for first, second in zip(rules[::2], rules[1::2], strict=True):
        waiting[second] += 1
        after[first].append(second)
    ready = [task for task, needed in waiting.items() if needed == 0]
    order = []
    while ready:
        task = heapq.heappop(ready)
        order.append(task)
        for other in after[task]:
            waiting[other] -= 1
            if waiting[other] == 0:
                heapq.heappush(ready, other)
    return " ".join(map(str, order)) if len(order) == count else "impossible"


@program(
    "hard",
    examples=[
        ("5 5\njoin 1 2\nsame 1 3\njoin 2 3\nsame 1 3\nsize 3\n", "no\nyes\n3"),
        ("1 1\nsize 1\n", "1"),
    ],
    edges=["2 1\nsame 2 2\n", "3 4\njoin 1 1\nsize 1\njoin 3 1\nsize 3\n"],
    draw=lambda r, n: "".join(
        [
            f"{n} {3 * n + 1}\n",
            *(
                f"size {r.randint(1, n)}\n"
                if r.random() < 0.3
                else f"{r.choice(['join', 'same'])} {r.randint(1, n)} {r.randint(1, n)}\n"
                for _ in range(3 * n)
            ),
            f"size {r.randint(1, n)}\n",
        ]
    ),
)
def circles_of_friends(text: str) -> str:
    """Keep track of circles of friends.

    Input: the first line holds the number n of people, numbered from 1, and m of lines that follow (both at
    least 1). At first everybody is a circle alone. "join a b" makes the circles of a and b one, "same a b"
    asks whether a and b are in one circle (a person is with itself), "size a" asks how many people are in
    the circle of a. There is at least one question.
    Output: a line for every question in order: yes or no, or the number.
    """
    lines = text.splitlines()
    circle = {person: {person} for person in range(1, int(lines[0].split()[0]) + 1)}
    answers = []
    for line in lines[1:]:
        verb, *rest = line.split()
        people = [int(word) for word in rest]
        if verb == "join":
            joined = circle[people[0]] | circle[people[1]]
            for person in joined:
                circle[person] = joined
        elif verb == "same":
            answers.append("yes" if people[1] in circle[people[0]] else "no")
        else:
            answers.append(str(len(circle[people[0]])))
    return "\n".join(answers)


@program(
    "hard",
    examples=[("3 3 1\n.#.\n.#.\n.#.\n", "###\n###\n###"), ("2 2 0\n#.\n..\n", "#.\n..")],
    edges=["5 5 4\n.#...\n..#..\n###..\n.....\n.....\n", "4 4 1\n....\n.##.\n.##.\n....\n", "1 1 1\n#\n"],
    draw=_board,
)
def life_on_a_torus(text: str) -> str:
    """Play the game of life on a board whose edges are joined.

    Input: the first line holds the number of rows, of columns (each at least 1) and of generations k (at
    least 0); then come the rows, of # for living and . for dead cells.
    Output: the board after k generations. Every cell has eight neighbours: the cells one row up or down
    and one column left or right, where the row above the first is the last, the column left of the first is
    the last, and the other way round; on a narrow board one cell may so be counted several times, and a cell
    may be its own neighbour. In a generation, all at once, a living cell stays alive with two or three
    living neighbours, a dead one comes to life with exactly three, and all others are dead.
    """
    lines = text.splitlines()
    height, width, generations = map(int, lines[0].split())
    board = [[cell == "#" for cell in line] for line in lines[1:]]
    around = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b]
    for _ in range(generations):
        counts = [
            [sum(board[(i + a) % height][(j + b) % width] for a, b in around) for j in range(width)]
            for i in range(height)
        ]
        board = [
            [count == 3 or (alive and count == 2) for alive, count in zip(row, numbers, strict=True)]
            for row, numbers in zip(board, counts, strict=True)
        ]
    return "\n".join("".join("#" if alive else "." for alive in row) for row in board)


@program(
    "hard",
    examples=[
        ("14\nfour score and seven years ago\n", "four score and\nseven    years\nago"),
        ("5\na b\n", "a b"),
    ],
    edges=["6\na b c d e f g\n", "3\nabc def\n", "10\na bb ccc\n", "7\naa bb cc\ndd\n"],
    draw=lambda r, n: f"{r.randint(6, 20)}\n{' '.join(words(r, 2 * n))}\n",
    compare="lines",
)
def justify(text: str) -> str:
    """Set a text in lines of equal width.

    Input: the first line holds the width w; the other lines hold words separated by spaces and line ends,
    none longer than w, at least one.
    Output: the words in order, as many on every line as fit with one space between them. On every line but
    the last the gaps are then widened with spaces until the line is exactly w wide: all gaps of a line
    equally, and where that does not come out even, the gaps further left get one space more. The last line,
    and a line that holds a single word, keep single spaces and nothing after the last word. The
    spaces between words are compared.
    """
    first, _, rest = text.partition("\n")
    width = int(first)
    rows: list[list[str]] = []
    for word in rest.split():
        if rows and len(" ".join([*rows[-1], word])) <= width:
            rows[-1].append(word)
        else:
            rows.append([word])
    lines = []
    for row in rows[:-1]:
        gaps = len(row) - 1
        spare = width - len("".join(row))
        line = row[0]
        for place, word in enumerate(row[1:]):
            line += " " * (spare // gaps + (place < spare % gaps)) + word
        lines.append(line)
    return "\n".join([*lines, " ".join(rows[-1])])


@program(
    "hard",
    examples=[("abc\n", "abc\nacb\nbac\nbca\ncab\ncba"), ("aab\n", "aab\naba\nbaa")],
    edges=["z\n", "aa\n", "aabb\n"],
    draw=lambda r, n: letters(r, min(n, 6), "abcd") + "\n",
    compare="unordered",
)
def arrangements(text: str) -> str:
    """Print every different arrangement of letters.

    Input: one word of 1 to 6 small letters, which may repeat.
    Output: every different arrangement of all its letters, once each, a line each, in any order.
    """
    from itertools import permutations

    return "\n".join(sorted({"".join(letters) for letters in permutations(text.strip())}))


@program(
    "hard",
    examples=[("3\n1 4\n2 6\n7 9\n", "2"), ("1\n5 5\n", "1")],
    edges=["2\n1 2\n2 3\n", "2\n1 2\n3 4\n", "3\n1 10\n2 3\n4 5\n", "3\n-5 -1\n-3 4\n-1 0\n"],
    draw=lambda r, n: "".join(
        [f"{n}\n", *(f"{a} {a + r.randint(0, 15)}\n" for a in numbers(r, n, -3 * n, 3 * n))]
    ),
)
def fewest_stabs(text: str) -> str:
    """Find the fewest points that hit every interval.

    Input: the first line holds n (at least 1); each of the next n lines an interval, as two integers a <= b.
    Output: the least number of points such that every interval contains at least one of them; the ends
    belong to the interval.
    """
    words = [int(word) for word in text.split()][1:]
    intervals = sorted(zip(words[::2], words[1::2], strict=True), key=lambda pair: pair[1])
    points: list[int] = []
    for first, last in intervals:
        if not points or first > points[-1]:
            points.append(last)
    return str(len(points))
