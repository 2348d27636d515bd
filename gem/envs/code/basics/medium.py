"""The medium problems: a known method, or a few rules that must hold together."""

from random import Random

from gem.envs.code.basics.problem import function, grid, letters, listing, numbers, program, words


def _brackets(r: Random, size: int) -> tuple[str]:
    half = letters(r, size, "([{x")
    return (half + half[::-1].translate(str.maketrans("([{", ")]}")) + r.choice(["", "", ")"]),)


def _matrix(r: Random, size: int) -> tuple[list[list[int]]]:
    rows, columns = numbers(r, 2, 1, min(size, 12))
    return ([numbers(r, columns, 0, 99) for _ in range(rows)],)


def _two_matrices(r: Random, size: int) -> str:
    a, b, c = numbers(r, 3, 1, min(size, 8))
    rows = [[a, b, c], *(numbers(r, b, -9, 9) for _ in range(a)), *(numbers(r, c, -9, 9) for _ in range(b))]
    return "".join(listing(row) + "\n" for row in rows)


def _nest_numbers(r: Random, size: int) -> tuple[list[object]]:
    flat = numbers(r, size, 0, 99)
    return ([flat[:1], [flat[1:3], [flat[3:5]]], *flat[5:], [[[flat[:2]]]]],)


def _stack_code(r: Random, size: int) -> str:
    lines = [f"push {number}" for number in numbers(r, size, -9, 9)]
    lines += [r.choice(["add", "sub", "mul", "dup", "print", "push 2"]) for _ in range(2 * size)]
    return "".join(f"{line}\n" for line in (len(lines) + 1, *lines, "print"))


def _map(r: Random, size: int) -> str:
    rows, columns = numbers(r, 2, 1, size)
    return "".join(f"{line}\n" for line in (f"{rows} {columns}", *grid(r, rows, columns, "#.")))


@function(
    "medium",
    examples=[(("a[b(c)]{}",), True), (("([)]",), False)],
    edges=[("",), ("]",), ("(",), ("no brackets",), ("(()",), ("}{",)],
    draw=_brackets,
)
def balanced_brackets(text: str) -> bool:
    """Return whether the brackets (), [] and {} in a text are balanced.

    Every bracket that is opened is closed by one of its own kind, and pairs are nested or apart, never
    crossed. All other characters are ignored.
    """
    opened = []
    for character in text:
        if character in "([{":
            opened.append(")]}"["([{".index(character)])
        elif character in ")]}" and (not opened or opened.pop() != character):
            return False
    return not opened


@function(
    "medium",
    examples=[(([[5, 8], [1, 3], [2, 4]],), [[1, 4], [5, 8]]), (([[1, 2], [2, 3]],), [[1, 3]])],
    edges=[([],), ([[0, 9], [2, 3]],), ([[1, 1], [1, 1]],), ([[3, 4], [1, 2]],), ([[-5, 5], [-9, -6]],)],
    draw=lambda r, n: ([[a, a + r.randint(0, 9)] for a in numbers(r, n, -3 * n, 3 * n)],),
)
def merge_intervals(intervals: list[list[int]]) -> list[list[int]]:
    """Return the union of closed intervals as intervals that do not touch, in ascending order.

    An interval is [first, last] with first <= last. Two intervals are joined when they have a number in
    common, an end included: [1, 2] and [2, 3] are, [1, 2] and [3, 4] are not.
    """
    merged: list[list[int]] = []
    for first, last in sorted(intervals):
        if merged and first <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], last)
        else:
            merged.append([first, last])
    return merged


@function(
    "medium",
    examples=[(("MCMXCIV",), 1994), (("III",), 3)],
    edges=[("I",), ("IV",), ("MMMCMXCIX",), ("XL",), ("CD",), ("XIX",)],
    draw=lambda r, n: (
        "M" * r.randint(0, 3)
        + r.choice(["", "CC", "CD", "D", "CM"])
        + r.choice(["X", "XL", "LXX", "XC"])
        + r.choice(["", "I", "IV", "VII", "IX"]),
    ),
)
def roman_to_integer(numeral: str) -> int:
    """Return the number that a Roman numeral stands for.

    The numeral is written in capitals, in the usual form, and stands for a number from 1 to 3999:
    I, V, X, L, C, D and M are 1, 5, 10, 50, 100, 500 and 1000, and a smaller sign before a larger one is
    subtracted.
    """
    values = [{"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}[sign] for sign in numeral]
    return sum(-value if value < max(values[place:]) else value for place, value in enumerate(values))


@function(
    "medium",
    examples=[((360,), [2, 2, 2, 3, 3, 5]), ((97,), [97])],
    edges=[(2,), (4,), (1,), (49,), (999983,), (2**20,), (999983 * 2,)],
    draw=lambda r, n: (r.randint(2, 10 * n**3),),
)
def prime_factors(number: int) -> list[int]:
    """Return the prime factors of a number, ascending, each as often as it divides.

    The number is at least 1 and at most ten million; 1 has no prime factors.
    """
    factors = []
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1
    return factors + [number] * (number > 1)


@function(
    "medium",
    examples=[(([[1, 2, 3], [4, 5, 6], [7, 8, 9]],), [1, 2, 3, 6, 9, 8, 7, 4, 5]), (([[1, 2]],), [1, 2])],
    edges=[([[5]],), ([[1], [2], [3]],), ([[1, 2, 3, 4]],), ([[1, 2], [3, 4], [5, 6]],)],
    draw=_matrix,
)
def spiral_order(matrix: list[list[int]]) -> list[int]:
    """Return the numbers of a matrix in spiral order.

    Begin at the top left, go right along the first row, down the last column, left along the last row, up
    the first column, and so on inwards. The matrix has at least one row and one column.
    """
    rows = [list(row) for row in matrix]
    found: list[int] = []
    while rows:
        found += rows.pop(0)
        rows = [list(row) for row in zip(*rows, strict=True)][::-1]
    return found


@function(
    "medium",
    examples=[
        ((["tea", "dog", "eat", "god"],), [["tea", "eat"], ["dog", "god"]]),
        (([],), []),
    ],
    edges=[([""],), (["a", "a"],), (["ab", "b", "ba", "aab"],)],
    draw=lambda r, n: (words(r, n, 3, "abc"),),
)
def group_anagrams(texts: list[str]) -> list[list[str]]:
    """Return the words of a list in groups that have the same letters, each letter equally often.

    Groups stand in the order in which their first words appear, words inside a group in the order of the
    list, repeated words included.
    """
    groups: dict[str, list[str]] = {}
    for text in texts:
        groups.setdefault("".join(sorted(text)), []).append(text)
    return list(groups.values())


@function(
    "medium",
    examples=[(("abcabcbb",), 3), (("bbbb",), 1)],
    edges=[("",), ("abba",), ("tmmzuxt",), ("dvdf",)],
    draw=lambda r, n: (letters(r, n, "abcdefghij"[: 3 + n // 4]),),
)
def longest_distinct_run(text: str) -> int:
    """Return the length of the longest contiguous part of a text in which no character occurs twice."""
    last: dict[str, int] = {}
    start = longest = 0
    for place, character in enumerate(text):
        start = max(start, last.get(character, -1) + 1)
        last[character] = place
        longest = max(longest, place + 1 - start)
    return longest


@function(
    "medium",
    examples=[(([1, 5, 3, 3, 3], 6), 4), (([], 0), 0)],
    edges=[([3, 3], 6), ([3], 6), ([0, 0, 0, 0], 0), ([-1, 1, -1, 1], 0)],
    draw=lambda r, n: (numbers(r, 5 * n, -n, n), r.randint(-n, n)),
)
def count_pairs(values: list[int], target: int) -> int:
    """Return how many pairs of positions i < j of a list hold numbers that add up to target."""
    seen: dict[int, int] = {}
    pairs = 0
    for value in values:
        pairs += seen.get(target - value, 0)
        seen[value] = seen.get(value, 0) + 1
    return pairs


@function(
    "medium",
    examples=[(([-2, 1, -3, 4, -1, 2, 1, -5, 4],), 6), (([-3, -1, -2],), -1)],
    edges=[([0],), ([-7],), ([5, -9, 5],), ([2, 3],)],
    draw=lambda r, n: (numbers(r, 4 * n, -20, 20),),
)
def best_run_sum(values: list[int]) -> int:
    """Return the largest sum of a contiguous run of one or more numbers of a list, which is not empty."""
    best = current = values[0]
    for value in values[1:]:
        current = max(current + value, value)
        best = max(best, current)
    return best


@function(
    "medium",
    examples=[(("3a2b1c",), "aaabbc"), (("12x",), "xxxxxxxxxxxx")],
    edges=[("",), ("1a1a",), ("10 2-",), ("0q3r",)],
    draw=lambda r, n: ("".join(f"{r.randint(0, 12)}{letters(r, 1)}" for _ in range(n)),),
)
def expand_runs(code: str) -> str:
    """Return the text that a run-length code stands for.

    The code is a sequence of pairs: a count in decimal digits (possibly more than one, possibly 0) and
    then one character that is no digit, which is repeated so often.
    """
    expanded, digits = "", ""
    for character in code:
        if character.isdigit():
            digits += character
        else:
            expanded += character * int(digits)
            digits = ""
    return expanded


@function(
    "medium",
    examples=[(([1, [2, [3, []]], 4],), [1, 2, 3, 4]), (([],), [])],
    edges=[([[[[]]]],), ([[1], [[2]], [[[3]]]],)],
    draw=_nest_numbers,
)
def flatten(items: list[object]) -> list[object]:
    """Return the numbers in a list that holds numbers and further such lists, to any depth, in order."""
    flat: list[object] = []
    for item in items:
        if isinstance(item, list):
            flat += flatten(item)
        else:
            flat.append(item)
    return flat


@function(
    "medium",
    examples=[(("192.168.0.1",), True), (("256.1.1.1",), False)],
    edges=[
        *(("0.0.0.0",), ("255.255.255.255",), ("1.2.3",), ("1.2.3.4.5",), ("01.2.3.4",), ("",), ("1..2.3",)),
        *((" 1.2.3.4",), ("1.2.3.-4",), ("a.b.c.d",), ("1.2.3.4.",), ("1.2.3.1000",)),
    ],
    draw=lambda r, n: (".".join(str(r.randint(0, 262)) for _ in range(r.choice([4, 4, 4, 4, 3, 5]))),),
)
def is_ipv4_address(text: str) -> bool:
    """Return whether a text is an IPv4 address: four numbers from 0 to 255 with single dots between them.

    The numbers consist of the digits 0 to 9, without a leading zero unless the number is 0 itself. Nothing
    else may stand in the text, no spaces either.
    """
    parts = text.split(".")
    return len(parts) == 4 and all(
        part != ""
        and all(digit in "0123456789" for digit in part)
        and str(int(part)) == part
        and int(part) < 256
        for part in parts
    )


@function(
    "medium",
    examples=[(([1, 2, 3],), [1, 3, 2]), (([3, 2, 1],), [1, 2, 3])],
    edges=[([],), ([1],), ([1, 1, 5],), ([2, 3, 1],), ([1, 5, 1],), ([2, 2, 2],), ([1, 3, 2],)],
    draw=lambda r, n: (numbers(r, n, 0, 4),),
)
def next_permutation(values: list[int]) -> list[int]:
    """Return the next arrangement of the numbers of a list in dictionary order.

    Dictionary order compares the first numbers, where these are equal the second ones, and so on. After the
    last arrangement comes the first, ascending one.
    """
    values = list(values)
    pivot = len(values) - 2
    while pivot >= 0 and values[pivot] >= values[pivot + 1]:
        pivot -= 1
    if pivot >= 0:
        other = len(values) - 1
        while values[other] <= values[pivot]:
            other -= 1
        values[pivot], values[other] = values[other], values[pivot]
    return values[: pivot + 1] + values[pivot + 1 :][::-1]


@function(
    "medium",
    examples=[((255, 16), "ff"), ((-5, 2), "-101")],
    edges=[(0, 7), (36, 36), (35, 36), (1, 2), (-36, 36)],
    draw=lambda r, n: (r.randint(-(10**n), 10**n), r.randint(2, 36)),
)
def to_base(number: int, base: int) -> str:
    """Return an integer written in a base from 2 to 36.

    Digits above 9 are the small letters from a on; a negative number begins with a minus sign; 0 is "0".
    """
    digits = ""
    rest = abs(number)
    while rest or not digits:
        rest, digit = divmod(rest, base)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return "-" * (number < 0) + digits


@function(
    "medium",
    examples=[(([[0, 30], [5, 10], [15, 20]],), 2), (([[1, 4], [4, 6]],), 1)],
    edges=[([],), ([[1, 2]],), ([[1, 5], [1, 5], [1, 5]],), ([[0, 10], [1, 2], [2, 3], [3, 9]],)],
    draw=lambda r, n: ([[a, a + r.randint(1, 12)] for a in numbers(r, 2 * n, 0, 2 * n)],),
)
def rooms_needed(meetings: list[list[int]]) -> int:
    """Return how many rooms are needed so that no two meetings share a room at the same time.

    A meeting [start, end], with start < end, needs its room from start up to but not including end: another
    may begin in that room at the moment it ends.
    """
    changes = sorted([(end, -1) for _, end in meetings] + [(start, 1) for start, _ in meetings])
    used = most = 0
    for _, change in changes:
        used += change
        most = max(most, used)
    return most


@function(
    "medium",
    examples=[(([1, 2, 3], 3), [[1, 2], [3]]), (([5], 4), [])],
    edges=[([1, 1], 1), ([], 3), ([2, 4, 6], 5), ([1, 2, 3, 4], 5), ([3, 1, 2], 3)],
    draw=lambda r, n: (numbers(r, min(n, 12), 1, 9), r.randint(1, min(n, 12) * 3)),
    compare="unordered",
)
def subsets_with_sum(values: list[int], target: int) -> list[list[int]]:
    """Return every choice of one or more positions of a list whose numbers add up to target, as numbers.

    The numbers of a choice stand in the order of the list. Choices of different positions are different
    even where their numbers are equal: for [1, 1] and 1 the answer is [[1], [1]]. All numbers are positive;
    there are at most 12. The choices may come in any order.
    """
    found: list[list[int]] = []
    for chosen in range(1, 2 ** len(values)):
        subset = [value for place, value in enumerate(values) if chosen >> place & 1]
        if sum(subset) == target:
            found.append(subset)
    return found


@function(
    "medium",
    examples=[((2.0, 2), 1.4142135623730951), ((27.0, 3), 3.0)],
    edges=[(0.0, 5), (1.0, 9), (0.001, 2), (1e12, 4), (0.5, 3), (7.0, 1)],
    draw=lambda r, n: (r.randint(0, 10**5) / 64, r.randint(2, n + 1)),
    compare="floats",
)
def positive_root(value: float, degree: int) -> float:
    """Return the non-negative number whose degree-th power is value.

    value is at least 0, degree at least 1. An error of one part in a million is tolerated, and near 0 one
    of 0.000001.
    """
    return float(value ** (1 / degree))


@program(
    "medium",
    examples=[
        (
            "5\ndeposit ann 50\nwithdraw ann 80\ndeposit bob 5\nwithdraw ann 20\nwithdraw cy 1\n",
            "ann 30\nbob 5\nrefused 2",
        ),
    ],
    edges=[
        "1\nwithdraw a 1\n",
        "2\ndeposit a 5\nwithdraw a 5\n",
        "3\ndeposit b 1\ndeposit a 2\ndeposit b 3\n",
    ],
    draw=lambda r, n: "".join(
        [
            f"{n}\n",
            *(
                f"{r.choice(['deposit', 'withdraw'])} {r.choice('abcd')} {r.randint(1, 50)}\n"
                for _ in range(n)
            ),
        ]
    ),
)
def bank_ledger(text: str) -> str:
    """Keep the accounts of a bank.

    Input: the first line holds n (at least 1); each of the next n lines is "deposit NAME AMOUNT" or
    "withdraw NAME AMOUNT" with a positive whole amount. Names are small letters. Every account begins
    at 0. A withdrawal of more than the account holds is refused and changes nothing.
    Output: a line "NAME BALANCE" for every name that made at least one deposit, in alphabetical order, even
    where the balance is 0; then a line "refused K", where K is the number of refused withdrawals.
    """
    accounts: dict[str, int] = {}
    refused = 0
    for line in text.splitlines()[1:]:
        verb, name, amount = line.split()
        if verb == "deposit":
            accounts[name] = accounts.get(name, 0) + int(amount)
        elif accounts.get(name, 0) >= int(amount):
            accounts[name] -= int(amount)
        else:
            refused += 1
    return "\n".join([*(f"{name} {accounts[name]}" for name in sorted(accounts)), f"refused {refused}"])


@program(
    "medium",
    examples=[("2 3 2\n1 2 3\n4 5 6\n1 0\n0 1\n2 2\n", "7 8\n16 17")],
    edges=["1 1 1\n-3\n4\n", "1 2 1\n1 2\n3\n4\n", "2 1 2\n1\n2\n3 4\n"],
    draw=_two_matrices,
)
def matrix_product(text: str) -> str:
    """Multiply two matrices of integers.

    Input: the first line holds a, b and c (each at least 1); then come a lines of b numbers, the first
    matrix, and b lines of c numbers, the second.
    Output: their product, as a lines of c numbers separated by spaces.
    """
    values = [int(word) for word in text.split()]
    a, b, c = values[:3]
    left, right = values[3 : 3 + a * b], values[3 + a * b :]
    rows = [[sum(left[i * b + k] * right[k * c + j] for k in range(b)) for j in range(c)] for i in range(a)]
    return "\n".join(" ".join(map(str, row)) for row in rows)


@program(
    "medium",
    examples=[("1/2 + 1/3\n", "5/6"), ("1/2 - 1/2\n", "0")],
    edges=["1/2 * 2/1\n", "1/3 - 1/2\n", "2/4 + 2/4\n", "3/4 / 3/8\n", "1/6 * 3/1\n", "0/5 - 1/7\n"],
    draw=lambda r, n: "{}/{} {} {}/{}\n".format(
        *numbers(r, 2, 1, 5 * n), r.choice("+-*/"), *numbers(r, 2, 1, 5 * n)
    ),
)
def calculate_fractions(text: str) -> str:
    """Calculate with fractions.

    Input: one line "A/B OP C/D" with whole numbers A >= 0, C > 0, B > 0 and D > 0, where OP is +, -, * or /.
    Output: the result in lowest terms as P/Q with Q > 0 and the sign, if any, before P. A whole result is
    written without a denominator.
    """
    from fractions import Fraction

    left, operator, right = text.split()
    a, b = Fraction(left), Fraction(right)
    return str({"+": a + b, "-": a - b, "*": a * b, "/": a / b}[operator])


@program(
    "medium",
    examples=[("2\nthe cat The dog the cat end\n", "the 3\ncat 2"), ("9\nb a\n", "a 1\nb 1")],
    edges=["1\nb B a A\n", "3\nx\n\ny x\n"],
    draw=lambda r, n: (
        f"{r.randint(1, 4)}\n" + "".join(" ".join(words(r, 6, 2, "abAB")) + "\n" for _ in range(n))
    ),
)
def word_frequency(text: str) -> str:
    """Print the most frequent words.

    Input: the first line holds k (at least 1); the other lines, up to the end of the input, hold words of
    letters separated by spaces and line ends, at least one word in all. Capitals and small letters are
    taken as equal.
    Output: the k most frequent words (all of them where there are fewer), a line each: the word in small
    letters, a space and how often it occurs. More frequent words come first, equally frequent ones in
    alphabetical order.
    """
    first, _, rest = text.partition("\n")
    counts: dict[str, int] = {}
    for word in rest.lower().split():
        counts[word] = counts.get(word, 0) + 1
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return "\n".join(f"{word} {counts[word]}" for word in ranked[: int(first)])


@program(
    "medium",
    examples=[("7 3\n", "3 6 2 7 5 1 4"), ("3 1\n", "1 2 3")],
    edges=["1 5\n", "2 2\n", "5 8\n"],
    draw=lambda r, n: f"{n} {r.randint(1, 2 * n)}\n",
)
def counting_out(text: str) -> str:
    """Play a counting-out game.

    Input: n and k, both at least 1, on one line. The numbers 1 to n stand in a circle.
    Output: the numbers in the order in which they leave. Counting begins at 1 with one; whoever is the
    k-th leaves, and counting begins again with one at the next who is still there, until nobody is left.
    """
    count, step = map(int, text.split())
    circle = list(range(1, count + 1))
    left = []
    place = 0
    while circle:
        place = (place + step - 1) % len(circle)
        left.append(circle.pop(place))
    return " ".join(map(str, left))


@program(
    "medium",
    examples=[("6\npush 3\npush 4\nadd\nprint\npop\nadd\n", "7\nerror"), ("2\npush -2\nprint\n", "-2")],
    edges=[
        "1\npop\n",
        "1\nprint\n",
        "4\npush 2\npush 5\nsub\nprint\n",
        "5\npush 2\nadd\nprint\ndup\nmul\n",
        "4\npush 1\npop\npush 2\nprint\n",
    ],
    draw=_stack_code,
)
def stack_machine(text: str) -> str:
    """Run a stack machine.

    Input: the first line holds n (at least 1); each of the next n lines is an instruction. "push X" puts
    the integer X on top of the stack. "pop" removes the top. "dup" puts the top on the stack once more.
    "add", "sub" and "mul" remove the top b and then the next number a, and put a + b, a - b or a * b on the
    stack. "print" prints the top on a line and leaves it there.
    Output: what was printed. An instruction for which the stack holds too few numbers prints a line "error"
    and ends the run. At least one line is printed.
    """
    stack: list[int] = []
    printed = []
    for line in text.splitlines()[1:]:
        verb, *rest = line.split()
        if len(stack) < {"push": 0, "pop": 1, "dup": 1, "print": 1}.get(verb, 2):
            printed.append("error")
            break
        if verb == "push":
            stack.append(int(rest[0]))
        elif verb == "pop":
            stack.pop()
        elif verb == "dup":
            stack.append(stack[-1])
        elif verb == "print":
            printed.append(str(stack[-1]))
        else:
            b, a = stack.pop(), stack.pop()
            stack.append({"add": a + b, "sub": a - b, "mul": a * b}[verb])
    return "\n".join(printed)


@program(
    "medium",
    examples=[("3 4\n##..\n.#.#\n...#\n", "2"), ("1 2\n..\n", "0")],
    edges=["1 1\n#\n", "2 2\n#.\n.#\n", "3 3\n###\n#.#\n###\n", "3 5\n#.#.#\n#.#.#\n#####\n"],
    draw=_map,
)
def count_islands(text: str) -> str:
    """Count the islands of a map.

    Input: the first line holds the number of rows and of columns (each at least 1); then come the rows, of
    # for land and . for water.
    Output: the number of islands. Land is one island where one can walk from cell to cell up, down, left
    and right; cells that touch only at a corner are not joined.
    """
    land = {
        (i, j) for i, row in enumerate(text.splitlines()[1:]) for j, cell in enumerate(row) if cell == "#"
    }
    islands = 0
    while land:
        islands += 1
        reached = [land.pop()]
        while reached:
            i, j = reached.pop()
            for near in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)):
                if near in land:
                    land.remove(near)
                    reached.append(near)
    return str(islands)
