"""The easy problems: one idea each."""

from random import Random

from gem.envs.code.basics.problem import function, letters, listing, numbers, program, words


def _near_palindrome(r: Random, size: int) -> tuple[str]:
    half = letters(r, size, "abc12 ")
    return (half + r.choice(["", "x", " ,"]) + half[::-1].upper() + r.choice(["", "!", "q"]),)


def _alike(r: Random, size: int) -> tuple[list[str]]:
    start = letters(r, size)
    return ([start + word for word in words(r, r.randint(1, 4), 3, "ab")],)


@function(
    "easy",
    examples=[(("Umbrella",), 3), (("rhythm",), 0)],
    edges=[("",), ("AEIOU aeiou",)],
    draw=lambda r, n: (letters(r, n, "aeiouAEIOUbcdfgyYZ "),),
)
def count_vowels(text: str) -> int:
    """Return how many characters of text are vowels: a, e, i, o or u, in either case (y is none)."""
    return sum(character in "aeiouAEIOU" for character in text)


@function(
    "easy",
    examples=[((2024,), True), ((1900,), False)],
    edges=[(2000,), (2023,), (400,), (4,), (100,), (1,)],
    draw=lambda r, n: (r.randint(1, 100 * n),),
)
def is_leap_year(year: int) -> bool:
    """Return whether a year is a leap year.

    Years divisible by 4 are, but years divisible by 100 are not, unless they are divisible by 400.
    The year is at least 1.
    """
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


@function(
    "easy",
    examples=[(([3, 9, 9, 5],), 5), (([7, 7],), None)],
    edges=[([],), ([1],), ([-5, -2],), ([0, -1, 0],)],
    draw=lambda r, n: (numbers(r, n, -n, n),),
)
def second_largest(values: list[int]) -> int | None:
    """Return the second largest of the distinct numbers in a list, or None where there is none."""
    distinct = sorted(set(values))
    return distinct[-2] if len(distinct) > 1 else None


@function(
    "easy",
    examples=[((4096,), 19), ((-52,), 7)],
    edges=[(0,), (-9,), (10**18,)],
    draw=lambda r, n: (r.randint(-(10**n), 10**n),),
)
def digit_sum(number: int) -> int:
    """Return the sum of the decimal digits of an integer; a minus sign is left out."""
    return sum(int(digit) for digit in str(abs(number)))


@function(
    "easy",
    examples=[(("the quick fox",), "fox quick the"), (("  a   b ",), "b a")],
    edges=[("",), ("   ",), ("one",)],
    draw=lambda r, n: ("  ".join(words(r, n)) + " " * r.randint(0, 2),),
)
def reverse_words(sentence: str) -> str:
    """Return the words of a sentence in reverse order, with one space between them.

    Words are separated by one or more spaces; spaces at the ends are dropped.
    """
    return " ".join(reversed(sentence.split()))


@function(
    "easy",
    examples=[((5,), ["1", "2", "Fizz", "4", "Buzz"]), ((0,), [])],
    edges=[(15,), (1,), (30,)],
    draw=lambda r, n: (n + r.randint(0, n),),
)
def fizz_buzz(count: int) -> list[str]:
    """Return what is said when counting from 1 to count.

    A multiple of both 3 and 5 is "FizzBuzz", another multiple of 3 is "Fizz", another multiple of 5 is
    "Buzz", and any other number is itself in decimal digits. For a count of 0 the list is empty.
    """
    said = []
    for number in range(1, count + 1):
        word = "Fizz" * (number % 3 == 0) + "Buzz" * (number % 5 == 0)
        said.append(word or str(number))
    return said


@function(
    "easy",
    examples=[(("No lemon, no melon!",), True), (("Almost",), False)],
    edges=[("",), ("?!",), ("a",), ("0P",), ("Ab1ba",), ("1a2a1",)],
    draw=_near_palindrome,
)
def is_palindrome_phrase(text: str) -> bool:
    """Return whether a text reads the same in both directions.

    Only the letters a to z, in either case and taken as equal, and the digits 0 to 9 count; all other
    characters are skipped. A text without any of them is a palindrome.
    """
    kept = [character for character in text.lower() if character in "abcdefghijklmnopqrstuvwxyz0123456789"]
    return kept == kept[::-1]


@function(
    "easy",
    examples=[(([2, 1, 5, 3],), [2, 2, 5, 5]), (([],), [])],
    edges=[([-3, -7, -1],), ([4, 4],)],
    draw=lambda r, n: (numbers(r, n, -50, 50),),
)
def running_maximum(values: list[int]) -> list[int]:
    """Return, for each position of a list, the largest number up to and including that position."""
    largest: list[int] = []
    for value in values:
        largest.append(value if not largest else max(largest[-1], value))
    return largest


@function(
    "easy",
    examples=[(("maxTurnCount",), "max_turn_count"), (("Rate",), "rate")],
    edges=[("x",), ("aB",), ("parseURL",), ("AB",)],
    draw=lambda r, n: (letters(r, n, "abcdefXYZ"),),
)
def to_snake_case(name: str) -> str:
    """Return a name in snake case.

    The name consists of the letters a to z and A to Z and is not empty. Every capital becomes its small
    letter, with an underscore before it unless it is the first character; so "parseURL" gives
    "parse_u_r_l".
    """
    return "".join(
        ("_" if place and letter.isupper() else "") + letter.lower() for place, letter in enumerate(name)
    )


@function(
    "easy",
    examples=[((["flower", "flow", "flight"],), "fl"), ((["dog", "car"],), "")],
    edges=[(["alone"],), (["", "a"],), (["ab", "ab"],), (["abc", "ab"],), (["ab", "abc", "abd"],)],
    draw=_alike,
)
def common_prefix(texts: list[str]) -> str:
    """Return the longest text with which every text of a list begins. The list is not empty."""
    shortest = min(texts, key=len)
    for length in range(len(shortest), 0, -1):
        if all(text.startswith(shortest[:length]) for text in texts):
            return shortest[:length]
    return ""


@function(
    "easy",
    examples=[(([-4, 2, 11], 0, 10), [0, 2, 10]), (([], 1, 2), [])],
    edges=[([5, 6, 7], 6, 6), ([1, 3], 1, 3), ([-9], -5, -1)],
    draw=lambda r, n: (numbers(r, n, -40, 40), r.randint(-30, 0), r.randint(0, 30)),
)
def clamp_all(values: list[int], low: int, high: int) -> list[int]:
    """Return the numbers of a list, those below low replaced by low and those above high by high.

    low is at most high.
    """
    return [min(max(value, low), high) for value in values]


@function(
    "easy",
    examples=[(([1, 2, 3, 4, 5], 2), [3, 4, 5, 1, 2]), (([1, 2, 3], -1), [3, 1, 2])],
    edges=[([], 3), ([1], 10), ([1, 2], 5), ([1, 2, 3], -7), ([1, 2, 3], 0)],
    draw=lambda r, n: (numbers(r, n, 0, 9), r.randint(-3 * n, 3 * n)),
)
def rotate_left(items: list[int], steps: int) -> list[int]:
    """Return a list rotated to the left by a number of steps.

    One step moves the first item to the end; a negative number of steps rotates to the right. There may
    be more steps than items, and the list may be empty.
    """
    if not items:
        return []
    steps %= len(items)
    return items[steps:] + items[:steps]


@function(
    "easy",
    examples=[(("aaabca",), [["a", 3], ["b", 1], ["c", 1], ["a", 1]]), (("",), [])],
    edges=[("z",), ("zz",), ("aAaa",), ("aabb",)],
    draw=lambda r, n: (letters(r, n, "aab "),),
)
def run_lengths(text: str) -> list[list[object]]:
    """Return the runs of equal characters in a text, in order, each as [character, length].

    A run is as long as possible: two neighbouring runs have different characters. Capitals differ from
    small letters.
    """
    runs: list[list[object]] = []
    length = 0
    for place, character in enumerate(text):
        length += 1
        if place + 1 == len(text) or text[place + 1] != character:
            runs.append([character, length])
            length = 0
    return runs


@function(
    "easy",
    examples=[(("Banana tree",), "a"), (("Bob and Ann",), "n")],
    edges=[("",), ("123 !",), ("ba",), ("zZyY",), ("BbAa",)],
    draw=lambda r, n: (letters(r, n, "abcABC ,1"),),
)
def most_common_letter(text: str) -> str:
    """Return the most frequent letter of a text, as a small letter.

    Only a to z count, capitals as their small letters. Of several that are equally frequent, the first in
    the alphabet is wanted. For a text without letters the answer is the empty text.
    """
    kept = [letter for letter in text.lower() if "a" <= letter <= "z"]
    return min(set(kept), key=lambda letter: (-kept.count(letter), letter), default="")


@function(
    "easy",
    examples=[(([1, 2, 3], [4, 5, 6]), 32), (([], []), 0)],
    edges=[([0], [5]), ([-2, 2], [3, 3])],
    draw=lambda r, n: (numbers(r, n, -99, 99), numbers(r, n, -99, 99)),
)
def dot_product(left: list[int], right: list[int]) -> int:
    """Return the sum of the products of the numbers at equal positions of two lists of equal length."""
    return sum(a * b for a, b in zip(left, right, strict=True))


@function(
    "easy",
    examples=[(([2, 7, 11, 15], 9), [0, 1]), (([1, 2], 50), None)],
    edges=[([3, 3], 6), ([], 0), ([5], 10), ([0, 4, 3, 0], 0), ([1, 2, 3, 4], 5)],
    draw=lambda r, n: (numbers(r, n, -n, n), r.randint(-n, n)),
    checker="""
        def check(arguments, result, expected):
            values, target = arguments
            if expected is None or result is None:
                return expected is None and result is None
            if type(result) is not list or len(result) != 2 or any(type(i) is not int for i in result):
                return False
            first, second = result
            return 0 <= first < second < len(values) and values[first] + values[second] == target
    """,
)
def find_pair(values: list[int], target: int) -> list[int] | None:
    """Return two positions [i, j] with i < j whose numbers add up to target, or None where there are none.

    Positions count from 0. Any such pair is right.
    """
    seen: dict[int, int] = {}
    for place, value in enumerate(values):
        if target - value in seen:
            return [seen[target - value], place]
        seen[value] = place
    return None


@function(
    "easy",
    examples=[(([1.0, 2.0, 4.0],), 2.3333333333333335), (([5.0],), 5.0)],
    edges=[([0.0, 0.0],), ([-1.5, 1.5],), ([1e6, 1.0],)],
    draw=lambda r, n: ([r.randint(-1000, 1000) / 8 for _ in range(n)],),
    compare="floats",
)
def mean(values: list[float]) -> float:
    """Return the arithmetic mean of the numbers of a list, which is not empty.

    An error of one part in a million is tolerated.
    """
    return sum(values) / len(values)


@program(
    "easy",
    examples=[("5\n1 2 3 4 5\n", "6"), ("1\n7\n", "0")],
    edges=["2\n-4 -3\n", "1\n0\n"],
    draw=lambda r, n: f"{n}\n{listing(numbers(r, n, -100, 100))}\n",
)
def sum_of_evens(text: str) -> str:
    """Print the sum of the even numbers in a list.

    Input: the first line holds n (at least 1), the second n integers separated by spaces.
    Output: the sum of those that are even; 0 when none is.
    """
    return str(sum(number for number in map(int, text.split()[1:]) if number % 2 == 0))


@program(
    "easy",
    examples=[("3\nAda 91\nBo 70\nCy 69\n", "Ada A\nBo C\nCy D")],
    edges=["5\na 90\nb 89\nc 80\nd 79\ne 60\n", "3\na 59\nb 0\nc 100\n"],
    draw=lambda r, n: "".join([f"{n}\n", *(f"{w} {r.randint(40, 100)}\n" for w in words(r, n))]),
)
def letter_grades(text: str) -> str:
    """Print the grade of every pupil.

    Input: the first line holds n (at least 1); each of the next n lines a name (without spaces) and a
    score from 0 to 100, separated by a space.
    Output: n lines in the same order, each the name, a space and the grade: A for 90 or more, B for 80 to
    89, C for 70 to 79, D for 60 to 69, F below 60.
    """
    lines = []
    for line in text.splitlines()[1:]:
        name, score = line.split()
        grade = "FFFFFFDCBAA"[int(score) // 10]
        lines.append(f"{name} {grade}")
    return "\n".join(lines)


@program(
    "easy",
    examples=[("3\n", "  *\n ***\n*****")],
    edges=["1\n", "2\n"],
    draw=lambda r, n: f"{n}\n",
    compare="lines",
)
def star_pyramid(text: str) -> str:
    """Draw a pyramid of stars.

    Input: the height n, from 1 to 40.
    Output: n lines. Line i, counted from 1, holds n - i spaces and then 2 * i - 1 stars, and nothing after
    the last star. The spaces before the stars are compared.
    """
    height = int(text)
    return "\n".join(" " * (height - row) + "*" * (2 * row - 1) for row in range(1, height + 1))


@program(
    "easy",
    examples=[("23:50 15\n", "00:05"), ("07:05 0\n", "07:05")],
    edges=["00:00 1440\n", "12:00 -1\n", "00:00 -1\n", "09:09 51\n", "10:30 -2000\n"],
    draw=lambda r, n: f"{r.randint(0, 23):02}:{r.randint(0, 59):02} {r.randint(-100 * n, 100 * n)}\n",
)
def add_minutes(text: str) -> str:
    """Add minutes to a time of day.

    Input: a time as HH:MM on the 24-hour clock, a space, and a whole number of minutes, which may be
    negative and may be more than a day.
    Output: the time of day after so many minutes, as HH:MM with two digits each; midnight is 00:00.
    """
    clock, minutes = text.split()
    hour, minute = clock.split(":")
    total = (60 * int(hour) + int(minute) + int(minutes)) % 1440
    return f"{total // 60:02}:{total % 60:02}"


@program(
    "easy",
    examples=[("3\nHello, World!\n", "Khoor, Zruog!"), ("-1\nabc\n", "zab")],
    edges=["0\nSame.\n", "26\nSame.\n", "27\nxyzXYZ\n", "-53\nA-z\n"],
    draw=lambda r, n: f"{r.randint(-60, 60)}\n.{letters(r, n, 'abcxyzABCXYZ ,.!')}.\n",
    compare="lines",
)
def caesar_shift(text: str) -> str:
    """Shift the letters of a text.

    Input: the first line holds a whole number k, which may be negative or large; the second line a text.
    Output: the text with every letter a to z and A to Z replaced by the one k places further in the
    alphabet, from z on with a again (backwards for a negative k). Capitals stay capitals, and every other
    character, spaces included, stays as it is.
    """
    first, line = text.splitlines()
    shift = int(first)
    shifted = []
    for letter in line:
        if "a" <= letter <= "z":
            letter = chr((ord(letter) - 97 + shift) % 26 + 97)
        elif "A" <= letter <= "Z":
            letter = chr((ord(letter) - 65 + shift) % 26 + 65)
        shifted.append(letter)
    return "".join(shifted)


@program(
    "easy",
    examples=[("3 -1 4 1 5\n", "-1 5 6"), ("8\n", "8 8 0")],
    edges=["-3 -9\n", "0 0 0\n", "1\n2\n3\n"],
    draw=lambda r, n: listing(numbers(r, n, -1000, 1000)) + "\n",
)
def smallest_largest_span(text: str) -> str:
    """Print the smallest number, the largest and their difference.

    Input: one or more integers, separated by spaces or line ends, up to the end of the input.
    Output: the smallest, the largest, and the largest minus the smallest, on one line with a space between.
    """
    values = [int(word) for word in text.split()]
    return f"{min(values)} {max(values)} {max(values) - min(values)}"


@program(
    "easy",
    examples=[("one two\n\nthree\n", "3 3"), ("word\n", "1 1")],
    edges=["\n", "a  b\n \nc\n", "  lead and trail  \n"],
    draw=lambda r, n: "".join("  ".join(words(r, r.randint(0, 4))) + "\n" for _ in range(n)),
)
def count_lines_and_words(text: str) -> str:
    """Count lines and words.

    Input: one or more lines of text up to the end of the input, each ended by a line break. Lines may be
    empty or blank, and count as lines all the same.
    Output: the number of lines and the number of words, with a space between. Words are separated by one
    or more spaces.
    """
    return f"{len(text.splitlines())} {len(text.split())}"


@program(
    "easy",
    examples=[("3\n", "1 2 3\n2 4 6\n3 6 9")],
    edges=["1\n", "10\n"],
    draw=lambda r, n: f"{min(n, 20)}\n",
)
def multiplication_table(text: str) -> str:
    """Print a multiplication table.

    Input: its size n, from 1 to 20.
    Output: n lines of n numbers separated by spaces; number j of line i, both counted from 1, is i * j.
    """
    size = int(text)
    return "\n".join(" ".join(str(i * j) for j in range(1, size + 1)) for i in range(1, size + 1))
