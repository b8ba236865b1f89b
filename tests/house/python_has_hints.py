#!/usr/bin/env python3
"""What a Python program may call has type hints and says what it does.

Usage: python_has_hints.py REPOSITORY
       python_has_hints.py --check-itself"""
import ast
import pathlib
import sys

CHECKED_BY_ITSELF = '''
def right(a: int, *more: str, _unused=None) -> None:
    """Does."""
class Right:
    """Is."""
    def __init__(self, a: int):
        pass
    def method(self) -> "Right":
        """Does."""
    @staticmethod
    def called(a: int) -> int:
        """Does."""
    def _own(self, a):
        pass
def no_hint(a, *, b: int) -> None:
    """Does."""
def no_result(a: int):
    """Does."""
def silent() -> None:
    pass
class Silent:
    def __init__(self, a):
        pass
    @staticmethod
    def called(a):
        """Does."""
'''
FOUND_BY_ITSELF = ["no_hint(): no hint for a", "no_result(): no hint for what it returns", "silent(): no docstring", "Silent: no docstring",
                   "Silent.__init__(): no hint for a", "Silent.called(): no hint for a, what it returns"]


def is_public(name):
    return not name.startswith("_") or name == "__init__"


def arguments_of(function, is_method):
    given = function.args
    named = [*given.posonlyargs, *given.args]
    is_static = any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in function.decorator_list)
    return [*named[1 if is_method and not is_static else 0:], *given.kwonlyargs, *filter(None, [given.vararg, given.kwarg])]


def faults_in(body, prefix=""):
    """Of functions, classes and their methods, those of other names than with _."""
    for node in body:
        if isinstance(node, ast.ClassDef) and is_public(node.name):
            if ast.get_docstring(node) is None:
                yield f"{prefix}{node.name}: no docstring"
            yield from faults_in(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and is_public(node.name):
            lacking = [one.arg for one in arguments_of(node, bool(prefix)) if one.annotation is None and not one.arg.startswith("_")]
            if node.returns is None and node.name != "__init__":
                lacking.append("what it returns")
            if lacking:
                yield f"{prefix}{node.name}(): no hint for {', '.join(lacking)}"
            if ast.get_docstring(node) is None and node.name != "__init__":
                yield f"{prefix}{node.name}(): no docstring"


def main():
    if sys.argv[1:] == ["--check-itself"]:
        found = list(faults_in(ast.parse(CHECKED_BY_ITSELF).body))
        return 0 if found == FOUND_BY_ITSELF else f"found {found}"
    root = pathlib.Path(sys.argv[1])
    modules = sorted((root / "python").rglob("*.py"))
    faults = [f"{module.relative_to(root)}: {fault}" for module in modules for fault in faults_in(ast.parse(module.read_text()).body)]
    if len(modules) < 20:
        faults.append(f"{root}/python has {len(modules)} modules, where there were more")
    return "\n".join(faults) or 0


sys.exit(main())
