"""What text in a `.pt2` may be, so that it is no code where torch evaluates, compiles or imports it.

Another kind of text is a function here; another operator, function of sizes or container a word in one of the lists.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

_PLAIN = re.compile(r"[^\"'\\()=`{}]*")
_ASSERTION = re.compile(r"Runtime assertion failed for expression [\w +*/<>=!(),-]* on node '\w+'")
_OPERATOR = re.compile(
    r"torch\.ops\.aten\.(?!(from_file|save|name)\.)([A-Za-z]|_[a-z])\w*\.[A-Za-z]\w*"
    r"|torch\.ops\.aten\.__i?(and|or|xor|lshift|rshift)__\.[A-Za-z]\w*"
    r"|torch\.ops\.(prims|quantized_decomposed|torchvision)\.(?!name\.)[A-Za-z]\w*\.[A-Za-z]\w*"
    r"|torch\.ops\.higher_order\.(cond|map_impl|scan|associative_scan|while_loop|wrap_with_(autocast|set_grad_enabled))"
    r"|_operator\.(abs|add|and_|eq|floordiv|ge|getitem|gt|le|lshift|lt|mod|mul|ne|neg|not_|or_|pos|pow|rshift|sub|truediv)"
    r"|torch\.sym_(float|int|ite|max|min|not|sum|sqrt)|torch\._sym_sqrt|math\.(ceil|floor|trunc|sqrt|pow|log|log2|exp)"
)
_SYMBOL = re.compile(r"[a-z]+[0-9]+|oo|int_oo|true|false")
_FUNCTION = re.compile(
    r"Symbol|Integer|Float|Rational|Add|Mul|Pow|Abs|Mod|Max|Min|And|Or|Not|Xor|Piecewise|floor|"
    r"ceiling|Eq|Ne|Lt|Le|Gt|Ge|Equality|Unequality|StrictLessThan|LessThan|StrictGreaterThan|"
    r"GreaterThan|FloorDiv|ModularIndexing|Where|PythonMod|CleanDiv|CeilToInt|FloorToInt|CeilDiv|LShift|"
    r"RShift|PowByNatural|FloatPow|FloatTrueDiv|IntTrueDiv|IsNonOverlappingAndDenseIndicator|TruncToFloat|"
    r"TruncToInt|RoundToInt|RoundDecimal|ToFloat|Identity"
)
_NUMBER_OR_NAME = re.compile(r"[A-Za-z]\w*|[+-]?[0-9.]+(e[+-]?[0-9]+)?")
_ARITHMETIC = (
    *(ast.Expression, ast.Call, ast.Name, ast.Load, ast.Constant, ast.keyword, ast.BinOp, ast.UnaryOp, ast.Compare),
    *(ast.BoolOp, ast.operator, ast.unaryop, ast.cmpop, ast.boolop),
)
_IMMUTABLE = "torch.fx.immutable_collections.immutable_"
_SEQUENCES = ("builtins.tuple", "builtins.list", f"{_IMMUTABLE}list")
_MAPPINGS = ("builtins.dict", "collections.OrderedDict", f"{_IMMUTABLE}dict")


def is_name(text: str) -> bool:
    """Tell whether text is a name of Python, or nothing."""
    return not text or text.isidentifier()


def is_plain(text: str) -> bool:
    """Tell whether text stays within quotes, on its line, and is no call."""
    return text.isprintable() and _PLAIN.fullmatch(text) is not None


def is_constant(text: str) -> bool:
    """Tell whether text is plain, or the message of an assertion as torch writes them."""
    return is_plain(text) or (text.isprintable() and _ASSERTION.fullmatch(text) is not None)


def is_operator(text: str) -> bool:
    """Tell whether a name is that of an operator, which computes and does nothing else."""
    return _OPERATOR.fullmatch(text) is not None


def is_arithmetic(text: str) -> bool:
    """Tell whether an expression only computes with symbols, as in `Mul(Integer(4), Symbol('s0', positive=True))`."""
    try:
        nodes = list(ast.walk(ast.parse(text, mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    called = {id(node.func) for node in calls}
    named = {
        id(node.args[0])
        for node in calls
        if node.args and isinstance(node.func, ast.Name) and node.func.id in {"Symbol", "Float"}
    }
    return all(isinstance(node, _ARITHMETIC) for node in nodes) and all(
        _is_known(node, called=id(node) in called, named=id(node) in named) for node in nodes
    )


def _is_known(node: ast.AST, *, called: bool, named: bool) -> bool:
    """Tell whether a name is a function where it is called and else a symbol, and text a symbol's name or a number."""
    if isinstance(node, ast.Name):
        return (_FUNCTION if called else _SYMBOL).fullmatch(node.id) is not None
    if isinstance(node, ast.Constant) and not isinstance(node.value, int | float):
        return isinstance(node.value, str) and named and _NUMBER_OR_NAME.fullmatch(node.value) is not None
    return not called


def is_tree(text: str, *, called: bool = False) -> bool:
    """Tell whether text describes tuples, lists and dicts; `called`: of the arguments of a call, so keys are names."""
    try:
        protocol, tree = json.loads(text)
        return protocol == 1 and _is_container(tree, keys_at=1 if called else None)
    except (ValueError, TypeError, KeyError, RecursionError):
        return False


def _is_container(tree: Any, *, keys_at: int | None) -> bool:
    if tree.keys() != {"type", "context", "children_spec"} or not isinstance(tree["children_spec"], list):
        return False
    below = None if keys_at is None else keys_at - 1
    if tree["type"] is None:
        return tree["context"] is None and not tree["children_spec"]
    if not all(_is_container(child, keys_at=below) for child in tree["children_spec"]):
        return False
    keys = json.loads(tree["context"])
    if tree["type"] in _SEQUENCES:
        return keys is None
    fits = str.isidentifier if keys_at == 0 else is_plain
    listed = tree["type"] in _MAPPINGS and isinstance(keys, list)
    return listed and all(type(key) is int or (type(key) is str and fits(key)) for key in keys)
