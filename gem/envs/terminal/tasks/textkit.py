"""Small text functions: what the repository of PatchRepo should be, before a defect is put in."""


def wrap(text: str, width: int) -> list[str]:
    """Break text into lines of at most `width` characters at blanks; a longer word has a line of its own."""
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines


def roman(number: int) -> str:
    """Write a number from 1 to 3999 in Roman numerals."""
    numerals = [(1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"),
                (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]  # fmt: skip
    text = ""
    for value, numeral in numerals:
        while number >= value:
            text += numeral
            number -= value
    return text


def merge_ranges(ranges: list[list[int]]) -> list[list[int]]:
    """Join ranges [first, last] that overlap or touch (a last of 3 touches a first of 4), in order."""
    merged: list[list[int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1][1] = max(merged[-1][1], last)
        else:
            merged.append([first, last])
    return merged


def run_lengths(text: str) -> list[list[object]]:
    """Give each run of equal characters as [character, length]."""
    runs: list[list[object]] = []
    start = 0
    for index in range(1, len(text) + 1):
        if index == len(text) or text[index] != text[start]:
            runs.append([text[start], index - start])
            start = index
    return runs


def most_common(words: list[str], count: int) -> list[str]:
    """Give the `count` most frequent words, ignoring case; of equally frequent ones the smaller first."""
    seen: dict[str, int] = {}
    for word in words:
        seen[word.lower()] = seen.get(word.lower(), 0) + 1
    return sorted(seen, key=lambda word: (-seen[word], word))[:count]


def parse_duration(text: str) -> int:
    """Read a duration such as 1h30m or 45s, in seconds; the units are h, m and s."""
    total, digits = 0, ""
    for letter in text:
        if letter.isdigit():
            digits += letter
        else:
            total += int(digits) * {"h": 3600, "m": 60, "s": 1}[letter]
            digits = ""
    return total


def justify(words: list[str], width: int) -> str:
    """Fill a line to `width` by blanks between the words; left gaps are wider by one where need be."""
    if len(words) == 1:
        return words[0].ljust(width)
    gaps = len(words) - 1
    blanks = width - sum(len(word) for word in words)
    line = ""
    for index, word in enumerate(words[:-1]):
        line += word + " " * (blanks // gaps + (1 if index < blanks % gaps else 0))
    return line + words[-1]
