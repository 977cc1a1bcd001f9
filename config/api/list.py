"""list.py DIRECTORY: the public symbols of a module and their conformances, one a line, from the symbol graphs in a directory. What the compiler
derives by itself, such as != of an Equatable type, is left out."""
import json
import pathlib
import sys

# Every type has them, or has them with one that is listed.
IMPLIED = {"Copyable", "Escapable", "SendableMetatype", "BitwiseCopyable"}


def lines(directory):
    for path in pathlib.Path(directory).glob("*.symbols.json"):
        # A graph of what one module adds to types of another is named Module@Other.
        other = path.name.partition("@")[2].removesuffix(".symbols.json")
        graph = json.loads(path.read_text())
        names = {}
        for symbol in graph["symbols"]:
            identifier = symbol["identifier"]["precise"]
            if "::SYNTHESIZED::" in identifier:
                continue
            name = names[identifier] = ".".join(([other] if other else []) + symbol["pathComponents"])
            declaration = "".join(fragment["spelling"] for fragment in symbol["declarationFragments"])
            yield f"{name}: {' '.join(declaration.split())}"
        for relation in graph["relationships"]:
            protocol = relation.get("targetFallback") or names.get(relation["target"], relation["target"])
            protocol = protocol.rpartition(".")[2]
            if relation["kind"] == "conformsTo" and protocol not in IMPLIED and relation["source"] in names:
                where = " where " + ", ".join(
                    f"{c['lhs']} {c['kind']} {c['rhs']}" for c in relation["swiftConstraints"]
                ) if relation.get("swiftConstraints") else ""
                yield f"{names[relation['source']]}: conforms to {protocol}{where}"


print("\n".join(sorted(set(lines(sys.argv[1])))))
