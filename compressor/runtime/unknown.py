"""What ONNX Runtime says of a model that it does not know, in one sentence that says what to do.

Another of its refusals is a line in `_REFUSALS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

from compressor import graph
from compressor.graph import count
from compressor.runtime import custom_ops


def explained(path: Path, said: str) -> str:
    """Give the sentence for what ONNX Runtime said of a model; empty where it is about something else."""
    for pattern, sentence in _REFUSALS.items():
        if found := re.search(pattern, said):
            return sentence(path, *found.groups())
    return ""


def _operator(path: Path, domain: str, operator: str) -> str:
    known = custom_ops.libraries()
    of = f"operator {operator} of the domain {domain!r}, {_node(path, domain, operator)}"
    if domain == "com.microsoft":
        return f"{of}, is none that {_runtime()} has; export the model for this version, or install the one it is for"
    if known:
        return f"{of}, is not in {', '.join(map(str, known))}; give the library that has it with --custom-ops"
    return f"{of}, is a custom one; give the shared library that has it with --custom-ops"


def _standard(path: Path, operator: str, opset: str) -> str:
    return (
        f"operator {operator}, {_node(path, '', operator)}, is none of the ONNX standard at opset {opset}; export the "
        "model again, or put a custom operator into a domain of its own and give its library with --custom-ops"
    )


def _opset(_path: Path, found: str, domain: str, newest: str) -> str:
    return f"it needs opset {found} of {domain}, {_runtime()} takes at most {newest}; export it for that"


def _ir_version(_path: Path, found: str, newest: str) -> str:
    return f"it is of IR version {found}, {_runtime()} takes at most {newest}; save it again for that"


def _kernel(_path: Path, operator: str, since: str, node: str) -> str:
    return (
        f"{_runtime()} has no kernel for operator {operator} of opset {since} with the types of node {node!r}; export "
        "the model with others"
    )


def _type(_path: Path, kind: str, value: str, operator: str, node: str) -> str:
    return f"node {node!r} ({operator}) reads {value!r} as {kind}, which the ONNX standard forbids; export it again"


def _node(path: Path, domain: str, operator: str) -> str:
    """Name the first node of an operator."""
    named = (
        n.name or n.outputs[0].name
        for n in count.nodes(graph.load(path))
        if (n.op_type, n.domain) == (operator, domain)
    )
    return f"node {next(named, '')!r}"


def _runtime() -> str:
    return f"ONNX Runtime {version('onnxruntime')}"


_REFUSALS: Mapping[str, Callable[..., str]] = {
    r"Fatal error: (.*):([^:(]+)\(-?\d+\) is not a registered function": _operator,
    r"No Op registered for (\S+) with domain_version of (\d+)": _standard,
    r"Opset (\d+) is under development.* for domain (\S+) is till opset (\d+)": _opset,
    r"Unsupported model IR version: (\d+), max supported IR version: (\d+)": _ir_version,
    r"Could not find an implementation for ([^(]+)\((\d+)\) node with name '(.*?)'": _kernel,
    r"Type Error: Type '(.*?)' of input parameter \((.*?)\) of operator \((.*?)\) in node \((.*?)\)": _type,
}
