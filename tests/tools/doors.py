"""Writes the faces of `rocketmq_sdk.aio` and `rocketmq_sdk.sync`.

A method, parameter or docstring of a class for trio is written once, there. This reads
the source of those classes and writes, for each door, the same class with the same
signatures and docstrings, whose methods call the door's own few ways of calling. Run it
in `tests/` after such a class has changed:

    python -m tools.doors            writes the files
    python -m tools.doors --check    says which are not as they would be written

`tests/doors/test_faces.py` fails when they are not up to date.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent, indent

import rocketmq_sdk
from support.paths import PACKAGE
from tools.door_tables import DOORS, FACES, Door, Face, Method

HEADER = '''"""`{face}` for {users}.

Written by `python -m tools.doors` from `rocketmq_sdk.{module}`;
that is the place for changes.
"""
'''


# --- what the classes for trio say


@cache
def tree(module: str) -> ast.Module:
    """The syntax tree of a module of the package."""
    return ast.parse((PACKAGE / f"{module.replace('.', '/')}.py").read_text("utf-8"))


@cache
def homes(module: str) -> dict[str, str]:
    """Where the names that a module uses come from: name to module."""
    found: dict[str, str] = {}
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {alias.asname or alias.name: node.module for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name: "" for alias in node.names}
    for node in tree(module).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found[node.name] = f"rocketmq_sdk.{module}"
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        found |= {t.id: f"rocketmq_sdk.{module}" for t in targets if isinstance(t, ast.Name)}
    return found


def class_of(face: Face) -> ast.ClassDef:
    """The class of a face, as it is written."""
    for node in tree(face.module).body:
        if isinstance(node, ast.ClassDef) and node.name == face.name:
            return node
    raise LookupError(f"{face.module} has no class {face.name}")


def is_overload(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a definition is one of several for type checkers."""
    return any(ast.unparse(each) == "overload" for each in node.decorator_list)


def constructors_of(face: Face) -> list[Method]:
    """What type checkers see of an overloaded constructor."""
    return [
        Method.read(node, face.module)
        for node in class_of(face).body
        if isinstance(node, ast.FunctionDef) and node.name == "__init__" and is_overload(node)
    ]


def methods_of(face: Face) -> dict[str, Method]:
    """The public methods and properties of a class.

    Its own, and those of bases that have no face of their own.
    """
    found: dict[str, Method] = {}
    for module, name in [(face.module, face.name), *face.also]:
        for node in class_of(Face(name, module, "", "")).body:
            if (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and not is_overload(node)
                and (
                    not node.name.startswith("_")
                    or node.name in ("__init__", "__aiter__", "__anext__")
                )
            ):
                found.setdefault(node.name, Method.read(node, module))
    return {name: method for name, method in found.items() if name not in face.left_out}


# --- writing


class Module:
    """One module of a door, and what it has to import."""

    def __init__(self, door: Door, face: Face) -> None:
        self.door = door
        self.face = face
        self.runtime: dict[str, str] = {}
        self.typing: dict[str, str] = {}

    def need(self, text: str, module: str, *, runtime: bool = False) -> str:
        """Import the names that a piece of source uses."""
        if not text:
            return text
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Name):
                self._import(node.id, module, runtime=runtime)
        return text

    def _import(self, name: str, module: str, *, runtime: bool) -> None:
        modules = [module, *(module for module, _ in self.face.also)]
        where = [found[name] for found in map(homes, modules) if name in found]
        if not where and name in rocketmq_sdk.__all__:
            where.append(f"rocketmq_sdk.{rocketmq_sdk._HOME_OF[name]}")
        home = self.door.home(name) or next(iter(where), None)
        if home is None or home == f"{self.door.package}.faces.{self.face.file}":
            return
        (self.runtime if runtime else self.typing)[name] = home

    def signature(self, method: Method) -> str:
        """The arguments of a method as source, with what they need imported."""
        arguments = method.arguments
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
            if argument.annotation is not None:
                self.need(ast.unparse(argument.annotation), method.module)
        for more in (arguments.vararg, arguments.kwarg):
            if more is not None and more.annotation is not None:
                self.need(ast.unparse(more.annotation), method.module)
        for default in [*arguments.defaults, *arguments.kw_defaults]:
            if default is not None:
                self.need(ast.unparse(default), method.module, runtime=True)
        return ast.unparse(arguments)

    def method(self, method: Method) -> str:
        """One method of the face."""
        door, key = self.door, f"{self.face.name}.{method.name}"
        body = dedent(door.bodies.get(key) or door.body(method))
        self.need(body, self.face.module, runtime=True)
        head, returns = door.head(method)
        if key in door.returns:
            returns = door.returns[key]
        self.need(returns, method.module)
        signature = self.signature(method)
        lines = [f"    {head} {door.name_of(method)}({signature}) -> {returns}:"]
        if method.kind == "property":
            lines.insert(0, "    @property")
        if method.docstring:
            lines.append(docstring(door.words(key, method.docstring), "        "))
        lines.append(indent(body, "        "))
        return "\n".join(lines) + "\n"

    def constructor(self, method: Method) -> str:
        """`__init__`: the object for trio, and the faces of what belongs to it."""
        face, door = self.face, self.door
        signature = self.signature(method)
        body = door.bodies.get(f"{face.name}.__init__")
        if body is None:
            given = method.passed_on(door.converted(face.name))
            body = "\n".join([f"self._inner = Inner{face.name}({given})", *door.attached(face)])
        self.need(body, face.module, runtime=True)
        self.runtime[f"{face.name} as Inner{face.name}"] = f"rocketmq_sdk.{face.module}"
        stubs = [
            f"    @overload\n    def __init__({self.signature(each)}) -> None: ...\n"
            for each in constructors_of(face)
        ]
        if stubs:
            self.runtime["overload"] = "typing"
        own = f"    def __init__({signature}) -> None:\n{indent(body, '        ')}\n"
        return "\n".join([*stubs, own])

    def text(self) -> str:
        """The whole module."""
        face, door = self.face, self.door
        methods = methods_of(face)
        parts: list[str] = []
        constructor = methods.pop("__init__", None)
        if face.entered and constructor is None:
            constructor = methods_of(Face(face.also[0][1], face.also[0][0], "", ""))["__init__"]
        bases = face.bases(door)
        for base in bases:
            self._import(base, face.module, runtime=True)
        inner = f"Inner{face.name}"
        self.typing[f"{face.name} as {inner}"] = f"rocketmq_sdk.{face.module}"
        if face.entered:
            assert constructor is not None
            parts.append(self.constructor(constructor))
        for name, (annotation, text) in face.attributes.items():
            self.need(annotation, face.module)
            parts.append(
                f"    @property\n    def {name}(self) -> {annotation}:\n"
                f"{docstring(text, '        ')}\n        return self._inner.{name}\n"
            )
            if name in face.settable:
                parts.append(
                    f"    @{name}.setter\n    def {name}(self, value: {annotation}) -> None:\n"
                    f"        self._inner.{name} = value\n"
                )
        parts += [self.method(method) for method in methods.values()]
        whole = ast.get_docstring(class_of(face))
        assert whole is not None
        return "\n".join(
            [
                HEADER.format(face=face.name, users=door.users, module=face.module),
                "from __future__ import annotations\n",
                self.imports(inner),
                f"\nclass {face.name}({', '.join(bases)}):",
                docstring(door.words(face.name, whole), "    "),
                f"\n    _inner: {inner}\n",
                *parts,
            ]
        )

    def imports(self, inner: str) -> str:
        """The import statements."""
        wanted = f"{self.face.name} as {inner}"
        if wanted in self.runtime:
            self.typing.pop(wanted, None)
        for name in self.runtime:
            self.typing.pop(name, None)
        lines = [statement(home, name) for name, home in self.runtime.items()]
        typing = [statement(home, name) for name, home in self.typing.items()]
        if typing:
            lines.append("from typing import TYPE_CHECKING")
            lines.append("if TYPE_CHECKING:")
            lines += [f"    {line}" for line in typing]
        return "\n".join(lines) + "\n"


def statement(home: str, name: str) -> str:
    """The statement that imports a name."""
    return f"from {home} import {name}" if home else f"import {name}"


def docstring(text: str, margin: str) -> str:
    """A docstring as source."""
    lines = text.splitlines()
    if len(lines) == 1 and len(lines[0]) <= 80:
        return f'{margin}"""{lines[0]}"""'
    body = "\n".join(f"{margin}{line}".rstrip() for line in lines[1:])
    return f'{margin}"""{lines[0]}\n{body}\n{margin}"""'


def formatted(texts: dict[Path, str]) -> dict[Path, str]:
    """Sources as ruff writes them: imports in order, lines broken."""
    with TemporaryDirectory() as name:
        root = Path(name)
        places = {path: root / path.relative_to(PACKAGE.parent) for path in texts}
        for path, place in places.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(texts[path], "utf-8")
        config = ["--config", str(PACKAGE.parent / "pyproject.toml"), "--no-cache", str(root)]
        ruff = [sys.executable, "-m", "ruff"]
        subprocess.run(
            [*ruff, "check", "-q", "--fix-only", "--select", "I,F401,TC", *config], check=True
        )
        subprocess.run([*ruff, "format", "-q", *config], check=True)
        return {path: place.read_text("utf-8") for path, place in places.items()}


# --- the packages


def package_text(door: Door) -> str:
    """The `__init__.py` of a door: every public name, its own faces among them."""
    own = {face.name: f"{door.package}.faces.{face.file}" for face in FACES if face.public}
    own |= {name: home for name, home in door.own.items() if name in rocketmq_sdk.__all__}
    names = sorted(rocketmq_sdk.__all__)
    where = {name: own.get(name, f"rocketmq_sdk.{rocketmq_sdk._HOME_OF[name]}") for name in names}
    imports = "\n".join(f"    from {where[name]} import {name}" for name in names)
    table = "\n".join(f'    "{name}": "{where[name]}",' for name in names)
    public = "\n".join(f'    "{name}",' for name in names)
    return f'''"""{door.title}

{door.text}

Written by `python -m tools.doors`. Importing it loads nothing else; each name is loaded
when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
{imports}

_HOME_OF: Final[dict[str, str]] = {{
{table}
}}

__all__ = [
{public}
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {{__name__!r}} has no attribute {{name!r}}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({{*globals(), *__all__}})
'''


def texts() -> dict[Path, str]:
    """All files as they should be."""
    found = {}
    for door in DOORS:
        folder = PACKAGE.parent / door.package.replace(".", "/")
        found[folder / "__init__.py"] = package_text(door)
        found[folder / "faces" / "__init__.py"] = (
            f'"""The classes of `{door.package}`, written by `python -m tools.doors`."""\n'
            "\nfrom __future__ import annotations\n"
        )
        for face in FACES:
            found[folder / "faces" / f"{face.file}.py"] = Module(door, face).text()
    return formatted(found)


def outdated() -> list[Path]:
    """The files that are not as they should be."""
    return [
        path
        for path, text in texts().items()
        if not path.exists() or path.read_text("utf-8") != text
    ]


def main() -> int:
    """Write or check the files."""
    if "--check" in sys.argv:
        late = outdated()
        for path in late:
            print(f"{path.relative_to(PACKAGE.parent)} is late; run python -m tools.doors")
        return 1 if late else 0
    for path, text in texts().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
