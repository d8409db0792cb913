"""The permitted imports of each layer, and the modules that pure layers must not use. The table is the architecture."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.unit.sources import Module, imports, modules

# Layer: what of ours it may import besides itself. A layer is a folder, or a module that lies directly in the package.
ALLOWED: dict[str, tuple[str, ...]] = {
    "core": (),
    "journal": ("core.records",),
    # Who leads, and which frames count, on a log that many nodes share.
    "replica": ("journal", "urls"),  # the last one is for the engines
    "wire": ("core", "__version__"),  # the version is what a peer is told at the handshake
    "client": ("wire", "core", "__version__", "urls"),
    "amqp10": ("wire", "__version__", "urls"),
    "xa": ("client", "core.branches.xid", "core.branches.xa", "text"),
    "admin": ("core", "definitions", "logs", "text", "xid_names"),
    # An index of the journal's messages.
    "history": (
        "core.branches.xid",
        "core.half.state",
        "core.queues.outcome",
        "core.records",
        "journal",
        "logs",
        "message_ids",
        "wire.formats",
        "wire.neutral",
    ),
    # What the HTTP process reads from the broker's files itself, for programs and for the console.
    "evidence": (
        "admin.http",
        "core.records.kinds",
        "history",
        "human",
        "inspection.describe",
        "journal.errors",
        "journal.format",
        "journal.reader",
    ),
    # Pages for operators. It asks the broker for what is not in files.
    "console": ("admin.http", "evidence", "human"),
    # The process that serves the management API, metrics and console.
    "web": ("admin.http", "console", "evidence", "logs"),
    "server": (
        *("admin", "backup.manifest", "backup.source", "core", "journal", "replica", "wire", "client"),
        *("config", "definitions", "logs", "loops", "units", "text", "urls", "__version__"),
    ),
    "definitions": (),
    # Stored contents as Arrow columns, for the connector.
    "columnar": ("core.messages", "wire.amqp091"),
    "spark": ("client", "columnar", "core.records", "java"),
    "pipeline": (
        "columnar",
        "core.branches.branch",
        "core.half.state",
        "core.messages",
        "core.policies",  # it judges outcomes by them
        "core.records",
        "core.conditions",
        "core.queues.admission",
        "core.queues.deaths",
        "core.queues.outcome",
        "core.branches.xid",
        "core.topology",  # it routes messages again
        "human",
        "java",
        "journal.bulk",
        "journal.digests",
        "journal.errors",
        "journal.format",
        "journal.frames",
        "journal.reader",
        "journal.removals",
        "message_ids",
        "units",
        "wire.admission",
        "wire.formats",
    ),
    "java": (),
    # It measures any broker, so it imports none; the codecs of AMQP 0-10 and 1.0, frames and messages know no broker.
    "perf": (
        "text",
        "urls",
        "wire.addresses",
        "wire.amqp010.codec",
        "wire.amqp10.codec",
        "wire.http2.frames",
        "wire.rocketmq.proto",
        "__version__",
    ),
    # It uses only public interfaces: the command line, real clients, Spark.
    "demo": ("client", "java", "pipeline.session", "spark"),
    "units": (),
    "loops": (),
    "human": (),
    "message_ids": (),
    "xid_names": ("core.branches.xid",),
    "text": (),
    "urls": (),
    "config": ("units",),
    "logs": (),
    "inspection": (
        "core.branches.branch",
        "core.half.state",
        "core.records",
        "core.messages",
        "core.branches.xid",
        "journal",
        "text",
    ),
    "backup": ("admin.socket", "journal", "text", "units"),
    "cli": (
        "__version__",
        "admin.http.broker",
        "admin.http.listing",
        "admin.socket",
        "backup",
        "config",
        "core.branches.xid",
        "definitions",
        "evidence.feed",
        "inspection.command",
        "journal.errors",
        "perf.command",
        "pipeline.command",
        "replica.errors",
        "server.main",
        "server.replica.detaching",
        "text",
        "units",
        "xid_names",
    ),
    "__main__": ("cli",),
}

PURE = ("core", "wire", "replica")
IMPURE_FOLDERS = ("replica.engines",)  # adapters that talk to other programs
SHARED = ("wire.http2", "wire.scram", "wire.selectors")  # folders of wire that are no protocols
# Code that imports one of these cannot run in a simulator with a seed. It takes time, randomness and bytes as
# arguments.
IMPURE = frozenset(
    {
        "asyncio",
        "concurrent",
        "datetime",
        "io",
        "multiprocessing",
        "os",
        "pathlib",
        "random",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "socketserver",
        "ssl",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "uuid",
    }
)
IN_MEMORY = frozenset({"io.BytesIO"})
IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval"})

# Words of one protocol or of slang; core says settlement, delivery, branch.
WORDS_FORBIDDEN_IN_CORE = frozenset({"ack", "acks", "acked", "nack", "txn", "txns"})


def ours(name: str) -> str | None:
    """`escrowmq.core.queues.queue.Queue` → `core.queues.queue` (the module); None for what is not ours."""
    if name.partition(".")[0] != "escrowmq":
        return None
    while name not in modules() and name.count(".") > 1:
        name = name.rpartition(".")[0]
    return name.partition(".")[2]


def within(target: str, allowed: tuple[str, ...]) -> bool:
    return any(target == prefix or target.startswith(prefix + ".") for prefix in allowed)


def layer_breaches(module: Module) -> Iterator[str]:
    for line, name in imports(module):
        target = ours(name)
        if target is not None and not within(target, (module.layer, *ALLOWED[module.layer])):
            yield f"{module.name}:{line} imports {target}"


def protocol_breaches(module: Module) -> Iterator[str]:
    """A protocol (a folder of wire) never imports another one; shared code is directly in wire, or in SHARED."""
    own = ".".join(module.name.split(".")[1:3])
    protocols = {
        ".".join(other.name.split(".")[1:3])
        for other in modules().values()
        if other.layer == "wire" and other.is_package
    } - {"wire", *SHARED}
    if own in protocols:
        for line, name in imports(module):
            target = ours(name)
            if target is not None and within(target, tuple(protocols - {own})):
                yield f"{module.name}:{line} imports {target}"


def impurities(module: Module) -> Iterator[str]:
    for line, name in imports(module):
        if name.partition(".")[0] in IMPURE and name not in IN_MEMORY:
            yield f"{module.name}:{line} imports {name}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield f"{module.name}:{node.lineno} calls {node.func.id}"


def protocol_words(module: Module) -> Iterator[str]:
    """Names and strings of one protocol. Docstrings and comments may cite a specification."""
    docstrings = {
        id(node.value)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(module.tree):
        for text in _texts(node, docstrings):
            words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text).lower())
            if "amqp" in words or WORDS_FORBIDDEN_IN_CORE.intersection(words):
                yield f"{module.name}:{getattr(node, 'lineno', '?')} says {text!r}"


def _texts(node: ast.AST, docstrings: set[int]) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)) if id(node) not in docstrings:
            yield text
        case ast.Name(id=text) | ast.Attribute(attr=text) | ast.arg(arg=text) | ast.alias(name=text):
            yield text
        case ast.FunctionDef(name=text) | ast.AsyncFunctionDef(name=text) | ast.ClassDef(name=text):
            yield text
        case _:
            return


def of_layers(*layers: str) -> list[Module]:
    return [module for module in modules().values() if module.layer in layers]


def fake(name: str, source: str) -> Module:
    module = Module(name, modules()["escrowmq"].path.parent / (name.replace(".", "/") + ".py"))
    module.__dict__["text"] = source
    return module


def test_every_layer_is_in_the_table() -> None:
    assert {module.layer for module in modules().values()} - {""} <= ALLOWED.keys()


def test_layers_import_only_what_the_table_allows() -> None:
    found = [breach for module in modules().values() if module.layer for breach in layer_breaches(module)]
    assert not found, "\n".join(found)


def test_protocols_do_not_import_each_other() -> None:
    found = [breach for module in of_layers("wire") for breach in protocol_breaches(module)]
    assert not found, "\n".join(found)


def test_pure_layers_reach_no_clock_socket_file_thread_or_chance() -> None:
    found = [
        breach
        for module in of_layers(*PURE)
        if not within(module.name.partition(".")[2], IMPURE_FOLDERS)
        for breach in impurities(module)
    ]
    assert not found, "\n".join(found)


def test_core_speaks_no_protocol() -> None:
    found = [breach for module in of_layers("core") for breach in protocol_words(module)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("escrowmq.core.queues.queue", "from escrowmq.journal import journal"),
        ("escrowmq.journal.format", "import escrowmq.core.broker"),
        ("escrowmq.journal.format", "def f():\n  from escrowmq.core import conditions"),
        ("escrowmq.wire.endpoint", "from escrowmq import server"),
        ("escrowmq.perf.command", "from escrowmq.core.conditions import Condition"),
        ("escrowmq.core.queues.queue", "from escrowmq import __version__"),
        ("escrowmq.core.queues.queue", "from ...journal import format"),
        ("escrowmq.core.queues.queue", "from ... import journal"),
    ],
)
def test_a_forbidden_import_is_found(name: str, source: str) -> None:
    assert list(layer_breaches(fake(name, source)))


def test_a_sibling_may_be_imported() -> None:
    module = fake(
        "escrowmq.core.queues.queue",
        "from .consumer import Consumer\nfrom .. import records\nimport escrowmq.core.queues.outcome",
    )
    assert not list(layer_breaches(module))


@pytest.mark.parametrize(
    "source",
    ["import time", "from os import path", "import concurrent.futures", "open('x')", "def f():\n  import random"],
)
def test_an_impurity_is_found(source: str) -> None:
    assert list(impurities(fake("escrowmq.core.queues.queue", source)))


@pytest.mark.parametrize("source", ["def send_ack(): ...", "x.amqp_method", "kind = 'AMQP'", "class TxnLog: ..."])
def test_a_word_of_a_protocol_is_found(source: str) -> None:
    assert list(protocol_words(fake("escrowmq.core.queues.queue", source)))


@pytest.mark.parametrize("source", ["'''As AMQP says.'''", "back = track", "# ack", "x = 'acquired'"])
def test_other_words_are_no_words_of_a_protocol(source: str) -> None:
    assert not list(protocol_words(fake("escrowmq.core.queues.queue", source)))
