"""Nouns: words after a number in, whether they are a unit or a counted thing that leaves the number out.

The lists are closed on purpose. A word outside them may be "squared", "thousand" or "short of x", so an
answer with such a word is not read as its number.
"""

from __future__ import annotations

import re

from gem.graders.mathematics.languages import word_set
from gem.graders.mathematics.units import UNITS, fold_case

_NOUNS = word_set("""
acre action adult album animal answer ant apartment apple arm arrangement artist aunt award baby badge bag
bagel ball balloon banana band bar barrel base basket bat batch bead bean bear beaver bed bee beetle bell
bike bill bird birthday biscuit bit blanket block blouse boat body book bookcase boot bottle bouquet bow
bowl box boy bracelet branch bread brick bridge brother brownie brush bucket bug building bulb bun bunch bus
bush business butterfly button cabbage cabin cake calculator calorie camel camera camper can candle candy
cap car carat card carrot cart case cat caterpillar cell chair chapter character chicken child chip
chocolate choice circle class classmate classroom client clip clock clove club coat coin color colour column
combination comic company computer container cookie corner course cousin cow coyote crab crate crayon credit
crew cricket cucumber cupcake curtain customer cut cycle dancer daughter deer desk diagonal diamond die
dinner dish divisor doctor dog doll dolphin donkey donut door dot doughnut drawer drawing dress drink driver
duck eagle ear earring edge egg element elephant employee engine envelope episode equation eraser error
event exam exercise eye face family fan farm farmer father feather fence file film finger fish flag flavor
floor flower fold folder foot forest fork fowl frame friend frog fruit function game garden gem gift giraffe
girl glass glove goal goat goldfish goose grade grain grandchild grape graph grid group guest guitar gumball
hair hamburger hamster hand handshake hat head heart hen hike hole home homework hook horse hospital hotdog
hotel house human instrument integer invitation item jacket jar jelly job joke journey juice jump kernel key
kick kid king kitchen kite kitten knife lamp language lap laptop layer leaf leg lemon lesson letter level
library light lighter line lion list litter loaf lollipop lunch machine magazine magnet man map marble mark
marker marshmallow mask match material meal measure meatball medal member message mile milk minnow mistake
mitten mole monkey moose mosquito mother motorcycle mouse movie muffin mug mushroom musician nail name
napkin necklace neighbor nest newspaper nickel night noodle note notebook nugget nurse nut object octopus
office onion option orange orchid order outcome outfit owl ox pack package packet page painter painting
pancake panda paper paperclip parent park part participant party passenger pastry patch path patient peach
peanut pear pebble pen pencil penguin people performer period permutation person pet photo photograph piano
pickle picture pie piece pig pigeon pillow pilot pin pineapple pizza place plan plane planet plant plate
player plum pocket poem point pond pony popsicle portion position possibility postcard poster pot potato
present president prize problem program project puddle pumpkin pupil puppy puzzle question rabbit raccoon
race radish raisin rectangle region reptile result reward ribbon rice ring river road robot rock role roll
room rose row ruler runner salad salmon sandwich sausage scarf school screw seal seashell seat section seed
seedling segment sentence sequence series serving set shape share shark sheep sheet shelf shell ship shirt
shoe shop shot shovel show shrimp side sign sister skirt skittle slice slide snack snail snake snowball sock
sofa soldier solution son song soup species spider sponge spoon squirrel stair stamp star state station stem
step stick sticker stitch stone store story straw strawberry street string student subject subset suit
sunflower swan sweater swimmer system table tablespoon tablet tank task taxi teacher team teaspoon teenager
term test text ticket tie tiger tile toad toe toffee token tomato tooth topping toucan tournament towel
tower town toy track train treat tree triangle trip truck tub tulip turkey turn turtle twig umbrella uncle
utensil value van vase vegetable vertex video view visit visitor volunteer vote voter wagon holder cd dvd tv
wall watch watermelon way whale wheel window wing wolf woman word worker world worm zebra zoo
""")
_UNCHANGED = word_set("""
children men women mice geese teeth oxen knives leaves loaves wolves halfpence shelves thieves vertices dice
pence lives wives deer
""")
_NO_NOUNS = word_set("""
dozens scores pairs couples tens hundreds thousands millions billions trillions halves thirds fourths fifths
sixths sevenths eighths ninths tenths hundredths thousandths squares cubes plus minus less times this thus
percents modulus unless perhaps always cross does previous various
""")
"""Words with the ending of a plural that may change the number before them, or are no nouns."""
_KINDS = word_set("""
red green blue yellow white black brown pink purple orange gold silver big small large little long short
tall new whole full different distinct total possible extra additional fresh square sq cubic fluid hot cold
sweet math reading easter homeless dangerous miniature medieval art recycled bug baseball soccer basketball
unique real drawing chewing pet duck pop popsicle ice cream sheet
""")
_TAIL = re.compile(
    r" (?:in total|in all|altogether|each|left|old|long|tall|high|wide|deep|away|total|profit|remaining"
    r"|left over|apart|today|a day|a week|an hour|a month|a year)$"
)


def is_unit_or_noun(words: str) -> bool:
    """Return whether words after a number certainly do not change it: a unit, or a counted thing.

    >>> is_unit_or_noun("dollars per day"), is_unit_or_noun("red apples"), is_unit_or_noun("or more")
    (True, True, False)
    >>> is_unit_or_noun("squared")
    False
    """
    text = " ".join(words.casefold().replace("/", " per ").split())
    if len(text) > 60:
        return False
    expects = True  # a noun, after kinds of it
    for word in _TAIL.sub("", text).split():
        if word in ("of", "per", "a", "an"):
            if expects:
                return False
            expects = True
        elif _is_noun(word) and not (expects and word in _KINDS and word not in _NOUNS):
            expects = False
        elif word not in _KINDS:
            return False
    return not expects


def _is_noun(word: str) -> bool:
    word = word.partition("^")[0].strip(".")
    if any(one in UNITS or one in _NOUNS for one in (word, *_singular(word))) or word in _UNCHANGED:
        return True
    return len(word) > 3 and word.isalpha() and word.endswith("s") and word not in _NO_NOUNS


def _singular(word: str) -> tuple[str, ...]:
    if word.endswith("ies"):
        return (word[:-3] + "y", word[:-1])
    return (word[:-1], word[:-2])[: word.endswith("s") + word.endswith("es")]


def same_things(one: str, other: str) -> bool:
    """Return whether two nouns mean the same: equal except for plural, or one is a known kind of the other.

    >>> same_things("red apples", "apple"), same_things("inches of snow", "inches")
    (True, True)
    >>> same_things("packs of cookies", "cookies"), same_things("dozen eggs", "eggs")
    (False, False)
    """
    (left, of_left), (right, of_right) = _phrase(one), _phrase(other)
    if (left, of_left) == (right, of_right):
        return True
    if not left or not right or left[-1] != right[-1] or (of_left and of_right and of_left != of_right):
        return False
    return all(word in _KINDS or _is_noun(word) for word in set(left) ^ set(right))


def _phrase(words: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of "pink boxes of candy" in the singular: the counted thing and its content."""
    plain_words = [word.strip(".()") for word in fold_case(words).replace("-", " ").split()]
    stems = tuple(_stem(word) for word in plain_words if word)
    at = stems.index("of") if "of" in stems and "per" not in stems else len(stems)
    head, rest = stems[:at], stems[at + 1 :]
    return (rest, ()) if head == ("piece",) and rest else (head, rest)


def _stem(word: str) -> str:
    options = (*_singular(word), word)
    return next((one for one in options if one in _NOUNS or one in UNITS), options[-2:][0])
