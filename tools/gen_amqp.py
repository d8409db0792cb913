#!/usr/bin/env python3
"""Write the generated modules of the AMQP 0-9-1 codec from the published XML and the project's overlay.

    tools/gen_amqp.py            write wire/amqp091/codes.py and spec.py
    tools/gen_amqp.py --check    write nothing; exit with 1 if a file differs from the generated text

The exit code is 2 if the published XML is missing (`apt-get install amqp-specs`, or name the file with --spec). The
output is laid out like that of `ruff format`, so no second tool is needed.
"""

from __future__ import annotations

import argparse
import keyword
import struct
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = Path("/usr/share/amqp/specs/0-9-1-rabbit/amqp0-9-1.stripped.extended.xml")
OVERLAY = ROOT / "tools" / "overlay_amqp091.xml"
TARGET = ROOT / "src" / "escrowmq" / "wire" / "amqp091"

LINE = 120
FIXED = {"octet": "B", "short": "H", "long": "I", "longlong": "Q", "timestamp": "Q"}
PYTHON_TYPE = dict.fromkeys(FIXED, "int") | {
    "bit": "bool",
    "shortstr": "str",
    "longstr": "bytes",
    "table": "FieldTable",
}
EMPTY = dict.fromkeys(FIXED, "0") | {"bit": "False", "shortstr": '""', "longstr": 'b""'}


@dataclass
class Field:
    """One argument: attribute name, wire type, and default as Python source."""

    name: str
    kind: str
    reserved: bool
    default: str

    @property
    def parameter(self) -> str:
        if self.kind == "table":
            return f"{self.name}: FieldTable | None = None"
        return f"{self.name}: {PYTHON_TYPE[self.kind]} = {self.default}"


@dataclass
class MethodSpec:
    """One method of one class, as in the XML."""

    class_name: str
    class_id: int
    name: str
    method_id: int
    content: bool
    synchronous: bool
    to_server: bool
    to_client: bool
    fields: list[Field]

    @property
    def full_name(self) -> str:
        return f"{self.class_name}.{self.name}"

    @property
    def python_name(self) -> str:
        return "".join(part.capitalize() for part in f"{self.class_name}-{self.name}".split("-"))

    @property
    def arguments(self) -> list[Field]:
        return [one for one in self.fields if not one.reserved]


@dataclass
class Specification:
    """The merged content of the two XML files."""

    constants: list[tuple[str, int, str]] = field(default_factory=list)
    methods: list[MethodSpec] = field(default_factory=list)
    properties: list[tuple[str, str]] = field(default_factory=list)


# ---- reading ----


def python_name(name: str) -> str:
    name = name.replace("-", "_")
    return f"{name}_" if keyword.iskeyword(name) or name == "global" else name


def literal(kind: str, value: str | None) -> str:
    """Return the Python source of a default value of the overlay."""
    if value is None:
        return EMPTY.get(kind, "None")
    if kind == "bit":
        return str(value == "1")
    if kind == "shortstr":
        return f'"{value}"'
    if kind == "longstr":
        return f'b"{value}"'
    return str(int(value))


def merged(published: ET.Element, overlay: ET.Element) -> list[ET.Element]:
    """Return the classes of both files, ordered by number. Methods of the overlay replace published ones."""
    classes = {one.attrib["name"]: one for one in published.iter("class")}
    for extra in overlay.iter("class"):
        base = classes.setdefault(extra.attrib["name"], extra)
        if base is extra:
            continue
        for method in extra.iter("method"):
            for old in base.findall(f"method[@name='{method.attrib['name']}']"):
                base.remove(old)
            base.append(method)
    return sorted(classes.values(), key=lambda one: int(one.attrib["index"]))


def read(published: Path, overlay: Path) -> Specification:
    first, second = ET.parse(published).getroot(), ET.parse(overlay).getroot()
    domains = {one.attrib["name"]: one.attrib["type"] for one in first.iter("domain")}
    defaults = {(one.attrib["method"], one.attrib["field"]): one.attrib["value"] for one in second.iter("default")}
    renamed = {(one.attrib["class"], one.attrib["name"]): one.attrib["as"] for one in second.iter("rename")}
    spec = Specification()
    for constant in [*first.iter("constant"), *second.iter("constant")]:
        name = constant.attrib["name"].replace("-", "_").upper()
        spec.constants.append((name, int(constant.attrib["value"]), constant.get("class", "")))
    for one in merged(first, second):
        class_name, class_id = one.attrib["name"], int(one.attrib["index"])
        for prop in one.findall("field"):
            name = renamed.get((class_name, prop.attrib["name"]), prop.attrib["name"])
            spec.properties.append((python_name(name), domains[prop.attrib["domain"]]))
        for method in sorted(one.findall("method"), key=lambda one: int(one.attrib["index"])):
            full_name = f"{class_name}.{method.attrib['name']}"
            fields = []
            for entry in method.findall("field"):
                kind = entry.get("type") or domains[entry.attrib["domain"]]
                default = literal(kind, defaults.pop((full_name, entry.attrib["name"]), None))
                fields.append(Field(python_name(entry.attrib["name"]), kind, entry.get("reserved") == "1", default))
            receivers = {chassis.attrib["name"] for chassis in method.findall("chassis")}
            spec.methods.append(
                MethodSpec(
                    class_name,
                    class_id,
                    method.attrib["name"],
                    int(method.attrib["index"]),
                    method.get("content") == "1",
                    method.get("synchronous") == "1",
                    "server" in receivers,
                    "client" in receivers,
                    fields,
                )
            )
    if defaults:
        raise SystemExit(f"{overlay}: <default> names unknown fields: {sorted(defaults)}")
    return spec


# ---- layout ----


def wrapped(indent: int, head: str, items: list[str], tail: str, *, joiner: str = ", ") -> list[str]:
    """Return `head items tail` on one line if it fits, otherwise with one item per line, as `ruff format` does."""
    pad = " " * indent
    one_line = f"{pad}{head}{joiner.join(items)}{tail}"
    if len(one_line) <= LINE:
        return [one_line]
    return [f"{pad}{head}", *(f"{pad}    {item}{joiner.rstrip()}" for item in items), f"{pad}{tail}"]


def tuple_of(items: list[str]) -> tuple[str, list[str], str]:
    """Return opening, items and closing of a tuple display. A single item keeps its comma."""
    return ("(", [f"{items[0]},"], ")") if len(items) == 1 else ("(", items, ")")


# ---- straight-line encoding ----


class Encoder:
    """Collects the expression that builds a payload. Adjacent numbers share one Struct."""

    def __init__(self, structs: set[str]) -> None:
        self.structs = structs
        self.parts: list[str] = []
        self.format = ""
        self.values: list[str] = []
        self.can_overflow = False

    def number(self, code: str, value: str) -> None:
        self.format += code
        self.values.append(value)

    def data(self, expression: str) -> None:
        self.flush()
        self.parts.append(expression)

    def flush(self) -> None:
        if not self.format:
            return
        if all(value.isdigit() for value in self.values):
            octets = struct.pack(f">{self.format}", *map(int, self.values))
            self.parts.append('b"' + "".join(f"\\x{octet:02x}" for octet in octets) + '"')
        else:
            self.structs.add(self.format)
            self.parts.append(f"_{self.format}.pack({', '.join(self.values)})")
            self.can_overflow = True
        self.format, self.values = "", []


def bit_groups(fields: list[Field]) -> list[Field | list[Field]]:
    """Group adjacent bits: up to eight share one octet, the first in the lowest bit."""
    groups: list[Field | list[Field]] = []
    for one in fields:
        if one.kind != "bit":
            groups.append(one)
        elif groups and isinstance(groups[-1], list) and len(groups[-1]) < 8:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def encode_body(method: MethodSpec, structs: set[str]) -> list[str]:
    out, lines = Encoder(structs), []
    out.number("H", str(method.class_id))
    out.number("H", str(method.method_id))
    for one in bit_groups(method.fields):
        if isinstance(one, list):
            bits = [f"self.{bit.name}" + f" << {n}" * (n > 0) for n, bit in enumerate(one) if not bit.reserved]
            if len(bits) > 1:
                lines.append(f"        bits = {' | '.join(bits)}")
                bits = ["bits"]
            out.number("B", bits[0] if bits else "0")
        elif one.kind in FIXED:
            out.number(FIXED[one.kind], "0" if one.reserved else f"self.{one.name}")
        elif one.reserved:
            out.number("B" if one.kind == "shortstr" else "I", "0")
        elif one.kind == "shortstr":
            lines.append(f"        {one.name} = self.{one.name}.encode()")
            out.number("B", f"len({one.name})")
            out.data(one.name)
        elif one.kind == "longstr":
            out.number("I", f"len(self.{one.name})")
            out.data(f"self.{one.name}")
        else:
            out.data(f"encode_table(self.{one.name})")
    out.flush()
    indent = 12 if out.can_overflow else 8
    result = f"{' ' * indent}return {' + '.join(out.parts)}"
    if len(result) <= LINE:
        body = [result]
    else:
        pad = " " * indent
        inner = f"{pad}    {' + '.join(out.parts)}"
        lines_inside = [f"{pad}    {out.parts[0]}", *(f"{pad}    + {part}" for part in out.parts[1:])]
        body = [f"{pad}return (", *([inner] if len(inner) <= LINE else lines_inside), f"{pad})"]
    if out.can_overflow:
        body = [
            "        try:",
            *body,
            "        except struct.error as error:",
            f'            raise ValueError(f"{method.full_name}: {{error}}") from None',
        ]
    return lines + body


# ---- straight-line decoding ----


def plus(base: str, offset: int) -> str:
    return f"{base} + {offset}" if offset else base


class Decoder:
    """Collects the statements that parse a payload. `offset` is the read position relative to the variable `at`."""

    def __init__(self, structs: set[str]) -> None:
        self.structs = structs
        self.lines: list[str] = []
        self.offset = 0

    def numbers(self, run: list[Field]) -> None:
        """Read adjacent numbers with one unpack; reserved ones are padding."""
        sizes = [struct.calcsize(f">{FIXED[one.kind]}") for one in run]
        names = [one.name for one in run if not one.reserved]
        if len(names) == 1 and sum(sizes) == 1:
            self.lines.append(f"{names[0]} = payload[{plus('at', self.offset)}]")
        elif names:
            code = "".join(
                f"{size}x" if one.reserved else FIXED[one.kind] for one, size in zip(run, sizes, strict=True)
            )
            self.structs.add(code)
            opening, items, closing = tuple_of(names)
            target = f"{opening}{items[0]}{closing}" if len(names) == 1 else ", ".join(names)
            self.lines.append(f"{target} = _{code}.unpack_from(payload, {plus('at', self.offset)})")
        self.offset += sum(sizes)

    def bits(self, group: list[Field]) -> None:
        if any(not bit.reserved for bit in group):
            self.lines.append(f"bits = payload[{plus('at', self.offset)}]")
        for number, bit in enumerate(group):
            if not bit.reserved:
                self.lines.append(f"{bit.name} = bits & {1 << number} != 0")
        self.offset += 1

    def string(self, one: Field) -> None:
        if one.kind == "shortstr":
            size, width = f"payload[{plus('at', self.offset)}]", 1
        else:
            self.structs.add("I")
            self.lines.append(f"(size,) = _I.unpack_from(payload, {plus('at', self.offset)})")
            size, width = "size", 4
        start = self.offset + width
        if one.reserved:
            self.lines.append(f"at += {start} + {size}")
        else:
            self.lines.append(f"end = at + {start} + {size}")
            data = f"payload[at + {start} : end]"
            self.lines.append(f"{one.name} = {data}.decode()" if one.kind == "shortstr" else f"{one.name} = {data}")
            self.lines.append("at = end")
        self.offset = 0

    def table(self, one: Field) -> None:
        self.lines.append(f"{one.name}, at = decode_table(payload, {plus('at', self.offset)})")
        self.offset = 0


def decode_body(method: MethodSpec, structs: set[str]) -> list[str]:
    out = Decoder(structs)
    run: list[Field] = []
    for one in [*bit_groups(method.fields), None]:
        if isinstance(one, Field) and one.kind in FIXED:
            run.append(one)
            continue
        if run:
            out.numbers(run)
            run = []
        if isinstance(one, list):
            out.bits(one)
        elif one is not None and one.kind == "table":
            out.table(one)
        elif one is not None:
            out.string(one)
    body = []
    if out.lines:
        body = [
            "        try:",
            *(f"            {line}" for line in out.lines),
            "        except (IndexError, struct.error, UnicodeDecodeError) as error:",
            f'            raise SyntaxFault(SYNTAX_ERROR, f"{method.full_name}: {{error}}") from None',
        ]
    body += [
        # A string that extends beyond the end moves `at` there, so one comparison detects short and long payloads.
        f"        if {plus('at', out.offset)} != len(payload):",
        f'            raise SyntaxFault(SYNTAX_ERROR, "{method.full_name}: arguments do not fill the frame")',
        f"        return cls({', '.join(one.name for one in method.arguments)})",
    ]
    return body


# ---- modules ----


def method_class(method: MethodSpec, structs: set[str]) -> list[str]:
    arguments = method.arguments
    direction = {
        (True, False): "client to server",
        (False, True): "server to client",
        (True, True): "either way",
    }[method.to_server, method.to_client]
    content = ", with content" if method.content else ""
    lines = [
        "",
        "",
        f"class {method.python_name}(Method):",
        f'    """{method.full_name} ({method.class_id}, {method.method_id}): {direction}{content}."""',
        "",
    ]
    if arguments:
        lines += wrapped(4, "__slots__ = (", tuple_of([f'"{one.name}"' for one in arguments])[1], ")")
    else:
        lines.append("    __slots__ = ()")
    lines += [
        "",
        f"    CLASS_ID = {method.class_id}",
        f"    METHOD_ID = {method.method_id}",
        f"    INDEX = 0x{method.class_id << 16 | method.method_id:08X}",
        f'    NAME = "{method.full_name}"',
        f"    HAS_CONTENT = {method.content}",
        f"    SYNCHRONOUS = {method.synchronous}",
        f"    TO_SERVER = {method.to_server}",
        f"    TO_CLIENT = {method.to_client}",
    ]
    pairs = [f'("{one.name}", "{one.kind}")' for one in arguments]
    lines += wrapped(4, "FIELDS = (", tuple_of(pairs)[1], ")") if pairs else ["    FIELDS = ()"]
    if arguments:
        lines.append("")
        lines += wrapped(4, "def __init__(", ["self", *(one.parameter for one in arguments)], ") -> None:")
        for one in arguments:
            value = f"{{}} if {one.name} is None else {one.name}" if one.kind == "table" else one.name
            lines.append(f"        self.{one.name} = {value}")
    lines += ["", "    def encode(self) -> bytes:", *encode_body(method, structs)]
    lines += ["", "    @classmethod", "    def decode(cls, payload: bytes, at: int = 4) -> Self:"]
    return lines + decode_body(method, structs)


MARK = "Generated by tools/gen_amqp.py from the published XML and tools/overlay_amqp091.xml; do not edit."


def codes_module(spec: Specification) -> str:
    lines = [
        f'"""The constants of AMQP 0-9-1.\n\n{MARK}\n"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Final",
    ]
    groups = [
        ("Frame types and sizes", [one for one in spec.constants if one[0].startswith("FRAME_") and not one[2]]),
        ("Reply codes", sorted((one for one in spec.constants if is_reply(one)), key=lambda one: one[1])),
        ("Outcomes in the answers of the dtx classes", [one for one in spec.constants if one[2] == "xa-flag"]),
    ]
    for title, constants in groups:
        lines += ["", f"# {title}", *(f"{name}: Final = {value}" for name, value, _ in constants)]
    replies = groups[1][1]
    lines += ["", "REPLY_NAMES: Final[dict[int, str]] = {"]
    lines += [f'    {value}: "{name}",' for name, value, _ in replies]
    lines += ["}", '"""The names of the reply codes, with which reply texts begin."""', ""]
    hard = [name for name, _, kind in replies if kind == "hard-error"]
    lines += ["HARD_ERRORS: Final = frozenset(", "    {", *(f"        {name}," for name in hard), "    }", ")"]
    lines += ['"""Reply codes that close the connection; other errors close the channel."""', ""]
    lines += ["BASIC_PROPERTIES: Final = ("]
    lines += [f'    ("{name}", "{kind}"),' for name, kind in spec.properties]
    lines += [")", '"""(name, wire type) of the content properties of class 60; the first has the highest flag bit."""']
    return "\n".join(lines) + "\n"


def is_reply(constant: tuple[str, int, str]) -> bool:
    return constant[2].endswith("-error") or constant[0] == "REPLY_SUCCESS"


def spec_module(spec: Specification) -> str:
    structs: set[str] = set()
    classes: list[str] = []
    for method in spec.methods:
        classes += method_class(method, structs)
    lines = [f'"""The methods of AMQP 0-9-1.\n\n{MARK}\n"""', "", "from __future__ import annotations", ""]
    lines += [
        "import struct",
        "from typing import Final, Self",
        "",
    ]
    names = [name for name, _, _ in spec.constants] + ["REPLY_NAMES", "HARD_ERRORS", "BASIC_PROPERTIES"]
    lines += ["from escrowmq.wire.amqp091.codes import ("]
    lines += [f"    {name} as {name}," for name in names]
    lines += [
        ")",
        "from escrowmq.wire.amqp091.errors import SyntaxFault",
        "from escrowmq.wire.amqp091.method import Method",
    ]
    lines += ["from escrowmq.wire.amqp091.table import FieldTable, decode_table, encode_table", ""]
    lines += [f'_{code} = struct.Struct(">{code}")' for code in sorted(structs)]
    lines += classes
    lines += ["", "", "METHODS: Final[dict[int, type[Method]]] = {"]
    lines += [f"    {method.python_name}.INDEX: {method.python_name}," for method in spec.methods]
    lines += ["}", '"""All methods by `INDEX`."""']
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare; exit with 1 if a file differs")
    parser.add_argument("--spec", type=Path, default=PUBLISHED, help="the published XML (default: %(default)s)")
    arguments = parser.parse_args()
    if not arguments.spec.is_file():
        print(f"{arguments.spec}: not found; apt-get install amqp-specs, or name the file with --spec", file=sys.stderr)
        return 2
    spec = read(arguments.spec, OVERLAY)
    differing = 0
    for path, text in ((TARGET / "codes.py", codes_module(spec)), (TARGET / "spec.py", spec_module(spec))):
        current = path.read_text(encoding="utf-8") if path.exists() else ""
        if current == text:
            continue
        differing += 1
        if arguments.check:
            print(f"{path.relative_to(ROOT)}: differs from the output of tools/gen_amqp.py", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
            print(f"{path.relative_to(ROOT)}: written, {len(spec.methods)} methods")
    return 1 if arguments.check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
