"""What of tests works only in the submission's own process: files, patches, subclasses, tables of pandas.

Tests run apart from the submission, so what these do does not reach it. Each function yields what it finds,
and only what no right submission could pass, as far as the text of the tests says; the rest is judged.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from gem.graders.python_code import Function, read_name


def find_shared(tree: ast.Module, free: set[str], preamble: ast.Module) -> Iterator[str]:
    """Yield why tests need the submission's process.

    `free` are names that tests use and neither they nor the preamble define.
    """
    if not any(_imports_all(node) for each in (preamble, tree) for node in ast.walk(each)):
        yield from _find_subclasses(tree, free)
    yield from _find_replaced(tree, free)
    yield from _find_tables(tree, free)
    yield from _find_files(tree, free)


def _imports_all(node: ast.AST) -> bool:
    """Return whether a statement may bind any name; that of the submission is left out before."""
    return isinstance(node, ast.ImportFrom) and node.names[0].name == "*"


def _find_subclasses(tree: ast.Module, free: set[str]) -> Iterator[str]:
    """Find classes of the tests that add methods or fields to one of the submission, which are lost.

    One that is made nowhere, or in the expectation of an error alone, may do without them.
    """
    nodes = list(ast.walk(tree))
    refused = {id(each) for node in nodes if _expects_error(node) for each in ast.walk(node)}
    kept = [node for node in nodes if id(node) not in refused]
    used = {read_name(node.func) for node in kept if isinstance(node, ast.Call)}
    used |= {node.attr for node in kept if isinstance(node, ast.Attribute)}
    for node in nodes:
        if not isinstance(node, ast.ClassDef):
            continue
        bases = [each.id for each in node.bases if isinstance(each, ast.Name) and each.id in free]
        added = {read_name(each.target) for each in node.body if isinstance(each, ast.AnnAssign)}
        methods = {each.name for each in node.body if isinstance(each, Function)}
        if bases and used.intersection(added | methods | ({node.name} if methods else set())):
            yield f"{node.name} extends {bases[0]} by what the submission's process does not get"


def _find_replaced(tree: ast.Module, free: set[str]) -> Iterator[str]:
    """Find functions of modules, and standard input, that tests replace by their own."""
    modules = {
        each.asname or each.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for each in node.names
    }
    assigned = {
        node.targets[0].id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        patches, inside, name = list[ast.expr](), list[ast.stmt](), ""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                patches, inside = node.decorator_list, node.body
            case ast.With():
                patches, inside = [each.context_expr for each in node.items], node.body
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=module)) as target], value=value):
                name = _read_dotted(target) if module in modules else ""
                value = assigned.get(read_name(value), value)
                if not (_fills(value) if name in ("sys.stdin", "sys.argv") else _answers(value)):
                    name = name if name == "builtins.input" else ""
        if any(_calls(line, free) for line in inside):
            names = [_name_patched(each, modules) for each in patches if isinstance(each, ast.Call)]
            name = next(filter(None, names), "")
        if name and name not in _SILENCED:
            yield f"the tests replace {name}, which the submission's process keeps"


_SILENCED = ("builtins.print", "time.sleep", "sys.stdout", "sys.stderr")
"""What is replaced to be quick or quiet, or is the tests' in both processes."""


def _fills(value: ast.expr) -> bool:
    """Return whether a value has what a program can read: the text of a file, or arguments behind a name."""
    match value:
        case ast.Call(args=[ast.Constant(value="" | b"")]) | ast.Call(args=[]) | ast.List(elts=[] | [_]):
            return False
    return isinstance(value, ast.Call | ast.List | ast.BinOp)


def _answers(value: ast.expr) -> bool:
    """Return whether a value is a function that returns something, or a mock."""
    match value:
        case ast.Lambda(body=body):
            return not (isinstance(body, ast.Constant) and body.value is None)
        case ast.Call(func=function):
            return read_name(function) in ("Mock", "MagicMock", "mock_open")
    return False


def _name_patched(call: ast.Call, modules: set[str]) -> str:
    """Return what a `patch` replaces by a function that returns something; empty for other calls."""
    match call:
        case ast.Call(func=function, args=[ast.Constant(value=str(name)), *more]) if (
            read_name(function) == "patch"
        ):
            pass
        case ast.Call(
            func=ast.Attribute(attr="object", value=patch),
            args=[ast.Name(id=module), ast.Constant(value=str(name)), *more],
        ) if read_name(patch) == "patch" and module in modules:
            name = f"{module}.{name}"
        case _:
            return ""
    keywords = {each.arg: each.value for each in call.keywords} | dict(zip(["new"], more, strict=False))
    results = [keywords[kind] for kind in ("return_value", "side_effect") if kind in keywords]
    answers = any(not (isinstance(each, ast.Constant) and each.value is None) for each in results)
    return name if answers or ("new" in keywords and _answers(keywords["new"])) else ""


def _calls(node: ast.AST, free: set[str]) -> bool:
    """Return whether a statement calls one of these names."""
    calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    return any(isinstance(each, ast.Name) and each.id in free for each in calls)


def _find_tables(tree: ast.Module, free: set[str]) -> Iterator[str]:
    """Find tables of the submission that pandas itself compares, which stand-ins for them are not."""
    values: dict[str, list[ast.expr]] = {}
    stores = Counter[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[target], value=value):
                for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                    values.setdefault(read_name(each), []).append(value)
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                stores[name] += 1
    values = {name: known for name, known in values.items() if len(known) == stores[name]}
    theirs = {name for name, known in values.items() if all(_root(each) in free for each in known)} | free
    tables = {name for name, known in values.items() if all(map(_makes_table, known))}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=function, args=[one, other, *_]) if read_name(function) in _COMPARERS:
                stays = _root(one) in theirs or _root(other) in theirs
            case ast.Call(func=ast.Attribute(attr="equals", value=one), args=[other]):
                pairs = ((one, other), (other, one))
                stays = any(
                    _root(left) in theirs and (_makes_table(right) or read_name(right) in tables)
                    for left, right in pairs
                )
            case _:
                continue
        if stays:
            yield "the tests compare a table of pandas that stays in the submission's process"


_COMPARERS = ("assert_frame_equal", "assert_series_equal", "assert_index_equal")


def _makes_table(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and read_name(value.func) in ("DataFrame", "Series")


def _root(value: ast.expr) -> str:
    """Return the name at the beginning of an expression: f of ``f(x)["a"].b()``."""
    while isinstance(value, ast.Attribute | ast.Subscript | ast.Call):
        value = value.func if isinstance(value, ast.Call) else value.value
    return read_name(value)


def _find_files(tree: ast.Module, free: set[str]) -> Iterator[str]:
    """Find files that the tests open and whose paths the submission gets: it has files of its own."""
    known = _Paths(free)
    top = ast.Module([each for each in tree.body if not isinstance(each, Function | ast.ClassDef)], [])
    functions = [each for each in ast.walk(tree) if isinstance(each, Function)]
    for _ in range(2):  # what is `self.path` may stand in a later function
        for scope in (top, *functions):
            paths = _Paths(free, dict(known.origins), set(known.opened), set(known.lent))
            paths.read(scope)
            if paths.lent & paths.opened:
                yield "the tests share a file with the submission, whose process has files of its own"
                return
            known.keep(paths, "" if scope is top else "self.")


@dataclass
class _Paths:
    """The paths in a piece of code: what names hold them, which it opens, and which it lends the submission.

    A path is known by its origin: a text, or the place of a call that makes a temporary file or folder.
    """

    free: set[str]
    origins: dict[str, set[str]] = field(default_factory=dict)
    opened: set[str] = field(default_factory=set)
    lent: set[str] = field(default_factory=set)

    def keep(self, other: _Paths, begin: str) -> None:
        """Add what another piece says of the paths that names which begin so hold."""
        names = {name: origins for name, origins in other.origins.items() if name.startswith(begin)}
        paths = set[str]().union(*names.values(), () if begin else other.opened | other.lent)
        self.origins |= names
        self.opened |= other.opened & paths
        self.lent |= other.lent & paths

    def read(self, scope: ast.AST) -> None:
        """Add what a piece of code says."""
        nodes = list(ast.walk(scope))
        for node in nodes:
            match node:
                case ast.Assign(targets=[target], value=value):
                    self._bind(target, value)
                case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                    self._bind(target, value)
        refused = {id(each) for node in nodes if _expects_error(node) for each in ast.walk(node)}
        missing = {id(each) for node in nodes if _expects_no_file(node) for each in ast.walk(node)}
        for node in nodes:
            if id(node) in missing:
                continue
            match node:
                case ast.Call(func=ast.Name(id=name), args=args, keywords=more) if name in self.free:
                    if id(node) not in refused:
                        self.lent.update(*map(self._find, (*args, *(each.value for each in more))))
                case ast.Call(func=function, args=[path, *_]) if _read_dotted(function) in _OPENERS:
                    self.opened |= self._find(path)
                case ast.Call(func=ast.Attribute(attr="to_csv"), args=[path, *_]):
                    self.opened |= self._find(path)
                case ast.Call(func=ast.Attribute(attr="write" | "writelines", value=ast.Name() as file)):
                    self.opened |= self._find(file)
                case (
                    ast.Assert(test=ast.Call(func=function, args=[path]))
                    | ast.Call(
                        func=ast.Attribute(attr="assertTrue"),
                        args=[ast.Call(func=function, args=[path]), *_],
                    )
                ) if read_name(function) in ("exists", "isfile", "isdir"):
                    self.opened |= self._find(path)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        origins = self._find(value)
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        for name in map(_read_dotted, names if origins else ()):
            self.origins[name] = self.origins.get(name, set()) | origins

    def _find(self, path: ast.expr) -> set[str]:
        """Return the origins of the paths that an expression is, or is built from."""
        if isinstance(path, ast.Constant):
            return {repr(path.value)} if isinstance(path.value, str) else set()
        origins, left = set[str](), [path]
        while left:
            match left.pop():
                case ast.Call(func=function, args=args) as call:
                    if read_name(function) in _TEMPORARY:
                        origins.add(f"{call.lineno}:{call.col_offset}")
                    elif read_name(function) in ("join", "str", "abspath"):
                        left += args
                case ast.Name() | ast.Attribute(value=ast.Name(id="self")) as name:
                    origins |= self.origins.get(_read_dotted(name), set())
                case ast.Attribute(attr="name", value=file):
                    left.append(file)
                case ast.BinOp(left=one, right=other):
                    left += [one, other]
                case ast.JoinedStr(values=pieces):
                    left += [each.value for each in pieces if isinstance(each, ast.FormattedValue)]
        return origins


_TEMPORARY = ("mkdtemp", "mkstemp", "NamedTemporaryFile", "TemporaryDirectory")
_OPENERS = (
    *("open", "io.open", "codecs.open", "gzip.open", "os.fdopen", "os.write"),
    *("zipfile.ZipFile", "ZipFile", "pd.read_csv", "pandas.read_csv"),
)


def _expects_error(node: ast.AST) -> bool:
    """Return whether a statement is run in the expectation of an error, as that of a file that is missing."""
    match node:
        case ast.With(items=[ast.withitem(context_expr=ast.Call(func=function))]):
            return read_name(function) in ("raises", "assertRaises", "assertRaisesRegex")
    return False


def _expects_no_file(node: ast.AST) -> bool:
    """Return whether a statement tries what ends with the error of a file that is missing."""
    return isinstance(node, ast.Try) and any(
        read_name(each.type) in ("FileNotFoundError", "OSError", "IOError")
        for each in node.handlers
        if each.type
    )


def _read_dotted(node: ast.expr) -> str:
    """Return a name, or a name behind another and a point; empty for other expressions."""
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            return f"{name}.{attribute}"
        case ast.Name(id=name):
            return name
    return ""
