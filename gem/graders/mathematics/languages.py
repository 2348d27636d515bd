"""Words of eleven languages around a final answer: what announces it, denies it, joins values, and units.

The languages are English, German, French, Spanish, Italian, Portuguese, Russian, Chinese, Japanese, Korean
and Arabic. Patterns are for one statement of bounded length, or linear.
"""

from __future__ import annotations

import re
from fractions import Fraction


def word_set(words: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(words.split())


ANNOUNCED = re.compile(
    r"####"
    r"|\b(?:answers?|ans)[*_\"]*(?:\s+(?:is|are)\b|\s*[:：=]|\s+[–—-](?=\s))[*_:：]*"
    r"|(?<!might )(?<!would )(?<!could )(?<!may )\banswer\b[^.:\n]{0,40}?\b(?:is|becomes|equals)\b[*_:]*"
    r"|\b(?:antwort|lösung)[*_]*(?:\s+(?:ist|lautet)\b|\s*[:：])[*_:]*"
    r"|\br[ée]ponse(?:\s+finale)?[*_]*(?:\s+est\b|\s*[:：])[*_:]*"
    r"|\brespuesta(?:\s+(?:final|correcta))?[*_]*(?:\s+es\b|\s*[:：])[*_:]*"
    r"|\brisposta(?:\s+finale)?[*_]*(?:\s+[èe]\b|\s*[:：])[*_:]*"
    r"|\bresposta(?:\s+final)?[*_]*(?:\s+[ée]\b|\s*[:：])[*_:]*"
    r"|\bответ[*_]*(?:\s+равен\b|\s*[:：—–-])[*_:]*"
    r"|答案[*_]*(?:是|为|為|[:：])[*_:：]*|答[*_]*[:：][*_]*|(?:答え|解答|回答)[*_]*(?:は|[:：])[*_]*"
    r"|(?:정답|답안|답)[*_]*(?:은|[:：])[*_]*"
    r"|(?:الجواب|الإجابة|الاجابة)(?:\s+(?:النهائي|النهائية|الصحيحة|الصحيح))?[*_]*(?:\s+(?:هو|هي)"
    r"|\s*[:：])[*_:]*",
    re.IGNORECASE,
)
"""What announces the final answer, up to where it begins."""

HEADING = re.compile(
    r"[#>*_\s]*(?:(?:the |my |our )?(?:final |correct )?(?:answers?|result)|conclusion"
    r"|(?:endgültige )?antwort|ergebnis"
    r"|r[ée]ponse(?: finale)?|respuesta(?: final)?|risposta(?: finale)?|resposta(?: final)?|ответ"
    r"|(?:最终|最終)?答案|答え|最終(?:的な)?(?:解答|回答)|(?:최종 )?(?:정답|답)"
    r"|الجواب(?: النهائي)?|الإجابة(?: النهائية)?)"
    r"[\s:：*_#]*",
    re.IGNORECASE,
)
"""A line that is only the heading of the final answer."""

TOTAL = re.compile(
    r"\b(?:total|sum|answer|result|altogether|overall|final|gesamt|insgesamt|ergebnis|summe|totale?|somme"
    r"|resultado"
    r"|résultat|risultato|итого|всего)\b|合计|总计|合計|答|합계|총|المجموع",
    re.IGNORECASE,
)
"""The label of a row, or of an item of a list, that holds the result."""

CONCLUDING = re.compile(
    r"(?:^|[,;.:]|—|\s-|\band|\bund|\bet|\by|\be|\bи)\s*"
    r"(?:so(?! (?:that|far|many|much|on|as)\b)|thus|hence|therefore|consequently|then|i\.?e\.?"
    r"|which (?:means|gives|makes|leaves)"
    r"|(?:that|this) (?:means|gives|makes|leaves)|meaning|giving|making|leaving"
    r"|namely(?![^.;]*(?:,\s|\band\b|\bor\b))"
    r"|(?:(?:for|with) )?an? (?:\w+ )?(?:total|sum|difference|gap|change|profit|loss)(?= of\b)"
    r"|also|somit|daher|folglich|das (?:hei[sß]+t|sind|ist)|donc|soit|por (?:lo )?tanto|entonces|así que"
    r"|es decir"
    r"|quindi|dunque|cioè|portanto|logo|ou seja|итак|значит|поэтому|то есть"
    r"|следовательно)\b[\s,:]*(?:that\b|que\b|daß|dass|che\b|что)?"
    r"|[→⇒⟹➡]|\\(?:implies|Rightarrow|Longrightarrow|therefore|to|rightarrow)(?![a-zA-Z])|∴|(?:^"
    r"|[,;.\s])(?:所以|因此|故|也就是|即|つまり|したがって|よって|따라서|즉|إذن|إذاً|أي)",
    re.IGNORECASE,
)
"""A word after which a sentence concludes."""

NEGATED = re.compile(
    r"(?:\b(?:not|never|neither|nor|cannot|nicht|kein\w*|niemals|pas|jamais|nunca|jamás|não|nao|mai|не|нет"
    r"|except|but not|"
    r"all but|anything but|everything but|without|ohne|sans|sin|senza|sem|без)"
    r"|n['’]t)(?:[\s$({\\*]+\S{1,12}){0,2}[\s$({\\*]*$"
    r"|(?:不是|并非|並非|没有|沒有|不等于|ليس|ليست|لا)[^。,，]{0,4}$|(?:\bno|\bnon|≠|\\neq?)[\s$({\\*]*(?:es|è"
    r"|è uguale a)?[\s$({\\*]*$",
    re.IGNORECASE,
)
"""A negation right before a value."""

DENIED_AFTER = re.compile(
    r"^\S{0,14}[\s。]*(?:ではない|じゃない|ではありません|이 아|가 아|아닙|不对|不對"
    r"|is not|isn['’]t|is wrong)"
)
"""A negation right after a value."""

HEDGED = re.compile(
    r"\b(?:maybe|perhaps|possibly|presumably|might|could be|may be|may have|close to|nearly|almost"
    r"|(?:i|we)(?:['’]d)? guess|(?:my|best|educated|rough|wild) guess|a guess|unsure|not sure"
    r"|not certain|uncertain|unclear|not clear"
    r"|don['’]?t know|do not know|can(?:no|['’])t (?:tell|be determined|determine|say|solve)"
    r"|cannot (?:tell|be determined|determine|say|solve)"
    r"|unable|depending on|depends on|not enough|insufficient|vielleicht|möglicherweise"
    r"|weiß nicht|peut-être"
    r"|soit .{1,40}? soit|tal vez|quizás?|puede que|no sé|forse|non so|talvez|não sei|возможно|может быть"
    r"|не знаю|наверное)\b"
    r"|也许|或许|可能是|不知道|不确定|かもしれ|たぶん|わかりません|아마|모르|ربما|لا أعرف",
    re.IGNORECASE,
)
"""Words of a sentence that states nothing for certain."""

AND_OR = word_set("""
and or & und oder et ou y e o и или 和 与 或 及 と または や 와 과 및 또는 و أو
""")
"""Words that join two values."""

ADJUNCT = word_set("""
the in of for from after before over within during per with at by than on among between since until into out
each every all both these those his her their its our my your other same
der die das den dem von für aus nach vor über mit bei an auf pro als jede jeder jedes je ihre seine alle diese
de des du pour après avant sur avec dans par que chaque ses leurs ces
el la los las para por con desde hasta cada sus estos los las
di per dopo con da ogni i le gli suoi
em com após seus
из за на по после до с у в каждый каждого
""")
"""Words before a number that is no stated value: "in 3 days", "of his 4 friends"."""

_FOREIGN_UNITS_LIST = """
dollars: dollar dólar доллар 美元 ドル 달러 دولار
cents: cent centavo centesim цент 美分 セント 센트 سنت
euros: euro евро 欧元 ユーロ 유로 يورو
yen: 円
percent: prozent cent ciento cento cento процент パーセント 퍼센트 بالمئة
hours: stunde heure hora ore ora час 小时 時間 시간 ساعة ساعات
minutes: мин minute minuto minuti минут 分钟 分 분 دقيقة دقائق
seconds: sekunde seconde segundo secondi secondo секунд 秒 초 ثانية ثوان
days: tag jour día dias dia giorn дней дня день 天 日 일 يوم أيام
weeks: woche semaine semana settiman недел 周 星期 週間 주일 أسبوع أسابيع
months: monat mois mes meses mês mesi mese месяц 个月 か月 ヶ月 개월 شهر أشهر
years: jahr ans année año anos ano anni anno лет год 年 歳 岁 년 살 سنة سنوات عام
km: kilometer kilomètre kilómetro chilometr quilômetr километр км 公里 千米 キロメートル 킬로미터 كيلومتر
cm: zentimeter centimètre centímetro centimetr сантиметр см 厘米 センチメートル センチ 센티미터 سنتيمتر
mm: millimeter millimètre milímetro миллиметр 毫米 ミリメートル 밀리미터
meters: meter mètre metro metri метр 米 メートル 미터 متر أمتار
feet: fuß pied pie pies piedi pés фут 英尺 フィート 피트 قدم أقدام
miles: meile mille milla miglia milha миль мили 英里 マイル 마일 ميل أميال
kg: kilogramm kilogramme kilogramo chilogramm quilograma килограмм кг 公斤 千克 キログラム 킬로그램
kg: كيلوغرام
grams: gramm gramme gramo grammi grama грамм 克 グラム 그램 غرام
pounds: pfund livre libra libbre фунт 磅 ポンド 파운드 رطل أرطال
liters: liter litre litro litri литр 升 リットル 리터 لتر
degrees: grad degré grado gradi grau градус 度 도 درجة
"""
_STEMS = sorted(
    (
        (stem, line.partition(":")[0])
        for line in _FOREIGN_UNITS_LIST.split("\n")[1:-1]
        for stem in line.partition(":")[2].split()
    ),
    key=lambda pair: -len(pair[0]),
)
_ENDINGS = re.compile(r"[a-zà-ÿß]{0,2}|[а-яё]{0,3}|[ًاٌٍَُِّْ]{0,3}")
_STOPWORDS = word_set("""
und ist sind also der die das den dem ein eine insgesamt beträgt mit von
hat denn dass wir sie im zu auch nur auf für kostet
est donc les des du une soit dans pour sont elle le et en au sur par nous qui que il
el los las del al por tanto es son una tiene para respuesta se su sus como hay cada
la quindi sono della gli una ha di che con per nel risposta
é são então portanto uma tem resposta os um da do em na com ela
""")
_ENGLISH = frozenset(["the", "of", "is", "are", "so", "and", "we", "this", "that", "has", "with", "each"])
_COMMAND = re.compile(r"\\[a-z]+")
_LETTERS = re.compile(r"[^\W\d_]+")
_GROUPS = re.compile(
    r"(?<![\d.,])([1-9]\d{0,2}(?:\.\d{3})+)(?:(?:,|\{,\})(\d+))?(?![\d]|[.,]\d)|([(\[]|\\\{)|([)\]]|\\\})"
)
_AMOUNT = re.compile(  # with two digits behind the comma, or more points than one
    r"[^\d()\[\]{}=,;]{0,9}[1-9]\d{0,2}(?:\.\d{3},\d\d|(?:\.\d{3}){2,}(?:,\d+)?)"
    r"(?:[^\d()\[\]{}=,;][^\d,;]{0,20})?"
)
_POINT = re.compile(r"(?<![\d.,])(?:\d{1,3}|\d+)\.(?!\d{3}(?!\d))\d+(?![\d.])")
_DIGITS = str.maketrans(
    "٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹０１２３４５６７８９٫٬％＝＋－（）：，",
    "012345678901234567890123456789.,%=+-():,",
)
_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_CJK_LETTER = re.compile(f"[{_CJK}]")
_GREEK = "αβγδεζηθικλμνξοπρσςτυφχψω"
_SPACING = re.compile(rf"(?<=[{_CJK}])(?=[\dA-Za-z$(\\*])|(?<=[\dA-Za-z%)$*}}])(?=[{_CJK}])")
_CLOCK = re.compile(r"(?<!\d)(\d{1,2}) ?[時时点點시] ?(?:(\d{1,2}) ?[分분])(?!钟|間)")


def write_ascii_digits(text: str) -> str:
    """Return a text with Arabic and full-width digits and signs in ASCII.

    >>> write_ascii_digits("٥٤٠")
    '540'
    """
    return text if text.isascii() else text.translate(_DIGITS).replace("¢", " cents")


def set_spaces(text: str) -> str:
    """Return a statement with spaces between numbers and letters of scripts without them; clocks as 8:15."""
    clocks = text if text.isascii() else _CLOCK.sub(lambda clock: f"{clock[1]}:{int(clock[2]):02d} ", text)
    return text if text.isascii() else _SPACING.sub(" ", clocks)


_ONES_AND_TENS = """
null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn
sechzehn siebzehn achtzehn neunzehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig

zéro - deux trois quatre cinq six sept huit - dix onze douze treize quatorze quinze seize dix-sept
dix-huit dix-neuf vingt trente quarante cinquante soixante soixante-dix quatre-vingts
quatre-vingt-dix

cero - dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis
diecisiete dieciocho diecinueve veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa

zero - due tre quattro cinque - sette otto nove dieci undici dodici tredici quattordici quindici
sedici diciassette diciotto diciannove venti trenta quaranta cinquanta sessanta settanta ottanta
novanta

zero - dois três quatro cinco seis sete oito nove dez onze doze treze quatorze quinze dezesseis
dezessete dezoito dezenove vinte trinta quarenta cinquenta sessenta setenta oitenta noventa

ноль - два три четыре пять шесть семь восемь девять десять одиннадцать двенадцать тринадцать
четырнадцать пятнадцать шестнадцать семнадцать восемнадцать девятнадцать двадцать тридцать сорок
пятьдесят шестьдесят семьдесят восемьдесят девяносто
"""
"""Numbers to nineteen, then the tens, in six languages; "-" where the word is an article or means more."""
_ONE_BEHIND = ("ein", "un", "uno", "uno", "um", "один")


def _spell_numbers() -> dict[str, int]:
    """Return the words for the numbers below 100."""
    words: dict[str, int] = {}
    tables = [part.split() for part in _ONES_AND_TENS.split("\n\n")]
    for language, one in enumerate(_ONE_BEHIND):
        ones, tens = tables[language][:20], tables[language][20:]
        words.update({word: number for number, word in enumerate(ones) if word != "-"})
        words.update({word: 10 * number for number, word in enumerate(tens, 2)})
        for n, ten in enumerate(tens, 2):
            for k, word in enumerate([one, *ones[2:10]], 1):
                word = word if word != "-" else ("neuf" if language == 1 else "sei")
                stem = ten.rstrip("s") if language == 1 else ten
                joined = (
                    f"{word}und{ten}", f"{stem}-{'et-' * (k == 1)}{word}", f"{ten} y {word}", f"{ten}{word}",
                    f"{ten} e {word}", f"{ten} {word}",
                )  # fmt: skip
                words.setdefault(joined[language], 10 * n + k)
                if language == 2 and n == 2:
                    words["veinti" + {"dos": "dós", "tres": "trés", "seis": "séis"}.get(word, word)] = 20 + k
    for n, ten in ((60, "soixante"), (80, "quatre-vingt")):
        for k, word in enumerate(tables[1][11:20], 11):
            words[f"{ten}-{'et-' * (n + k == 71)}{word}"] = n + k
    return words


_NUMBERS = _spell_numbers()
_CASELESS = {word.casefold(): number for word, number in _NUMBERS.items()}
_SPELLED = re.compile(rf"\b(?:{'|'.join(sorted(_NUMBERS, key=len, reverse=True))})\b", re.IGNORECASE)
_ANNOUNCES = re.compile(r"\b(?:antwort|r[ée]ponse|respuesta|risposta|resposta)\b", re.IGNORECASE)
_DOZENS = re.compile(
    r"(?<![\d.,])(\d{1,6}) (?:dutzend|douzaines?|docenas?|dozzin[ae]|dúzias?|дюжин\w?)\b", re.IGNORECASE
)
_CHINESE = {character: number for number, character in enumerate("零一二三四五六七八九")} | {"两": 2}
_CHINESE_NUMBER = re.compile(
    r"(?<=[^一-鿿]|是)([二三四五六七八九]?)十([一二三四五六七八九]?)(?=[^年月日分万百千]|$)"
)
_MYRIADS = re.compile(r"(\d[\d,]*(?:\.\d+)?) ?([万億亿만])")


def write_numbers(text: str) -> str:
    """Return a statement of another language with its numbers below 100, and ten thousands, in digits.

    >>> write_numbers("Respuesta: veintiséis"), write_numbers("14.4 万美元"), write_numbers("答案是四十二")
    ('Respuesta: 26', '144000 美元', '答案是42')
    """
    if not text.isascii():
        text = _CHINESE_NUMBER.sub(
            lambda match: str(10 * _CHINESE.get(match[1], 1) + _CHINESE.get(match[2], 0)),
            _MYRIADS.sub(_write_myriads, text),
        )
    if not is_foreign(text):
        return text
    # A pattern that ignores case matches letters that casefold() keeps apart, such as a dotless i.
    text = _SPELLED.sub(lambda match: str(_CASELESS.get(match[0].casefold(), match[0])), text)
    return _DOZENS.sub(lambda match: str(12 * int(match[1])), text)


def _write_myriads(match: re.Match[str]) -> str:
    amount = Fraction(match[1].replace(",", "")) * (10**8 if match[2] in "億亿" else 10**4)
    return f"{amount} " if amount.denominator == 1 else match[0]


def is_foreign(text: str) -> bool:
    """Return whether a text is, by its commonest words or its letters, not in English."""
    words = _LETTERS.findall(_COMMAND.sub(" ", text[-4000:].casefold()))
    foreign = sum(word[0] > "\u0370" and word[0] not in _GREEK for word in words)
    return (
        2 * foreign > len(words) > 0
        or len(_STOPWORDS.intersection(words)) - 2 * len(_ENGLISH.intersection(words)) >= 2
        or _ANNOUNCES.search(text[-4000:]) is not None
    )


def join_groups(value: str, text: str) -> str:
    """Return a value whose thousands are written with points, in a text, with its digits joined.

    In brackets 1.125,2 is two numbers.

    >>> join_groups("3.500.000", ""), join_groups("9.360", "also hat sie 9.360 Euro und das ist gut")
    ('3500000', '9360')
    >>> join_groups("9.360", "so it is 9.360"), join_groups("(1.125,2)", "")
    ('9.360', '(1.125,2)')
    """
    depth = 0

    def join(match: re.Match[str]) -> str:
        nonlocal depth
        depth += bool(match[3]) - bool(match[4])
        if not match[1] or (match[2] and depth > 0):
            return match[0]
        plain = match[1].replace(".", "") + (f".{match[2]}" if match[2] else "")
        if match[2] is not None or match[1].count(".") > 1:
            return plain
        # a language that writes 1.000,5, in a text that writes no decimal with a point
        comma = is_foreign(text) and not _CJK_LETTER.search(text) and not _POINT.search(text)
        return plain if comma else match[0]

    return _GROUPS.sub(join, value) if "." in value else value


def join_amount(value: str) -> str:
    """Return a value of unknown language with its digits joined if it can only be one number.

    >>> join_amount("1.234,50"), join_amount("1.234.567"), join_amount("1.125,2")
    ('1234.50', '1234567', '1.125,2')
    """
    return join_groups(value, "") if _AMOUNT.fullmatch(value) else value


def unit_name(word: str) -> str | None:
    """Return the English name of a unit in one of the other languages; None for another word.

    >>> unit_name("Stunden"), unit_name("フィート外側に"), unit_name("apples")
    ('hours', 'feet', None)
    """
    word = word.casefold().strip(".,;:!?*()")
    for stem, name in _STEMS:
        rest = word[len(stem) :]
        inflected = (
            "\u3040" <= stem[0] <= "\ud7af" or not rest or (len(stem) > 3 and _ENDINGS.fullmatch(rest))
        )
        if word.startswith(stem) and inflected:
            return name
    return None
