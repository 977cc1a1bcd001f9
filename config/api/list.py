"""list.py DIRECTORY: the public symbols of a module, one a line, from the symbol graphs in a directory. What the compiler derives by
itself, such as != of an Equatable type, is left out."""
import json
import pathlib
import sys


def lines(directory):
    for path in pathlib.Path(directory).glob("*.symbols.json"):
        # A graph of what one module adds to types of another is named Module@Other.
        other = path.name.partition("@")[2].removesuffix(".symbols.json")
        for symbol in json.loads(path.read_text())["symbols"]:
            if "::SYNTHESIZED::" in symbol["identifier"]["precise"]:
                continue
            name = ".".join(([other] if other else []) + symbol["pathComponents"])
            declaration = "".join(fragment["spelling"] for fragment in symbol["declarationFragments"])
            yield f"{name}: {' '.join(declaration.split())}"


print("\n".join(sorted(set(lines(sys.argv[1])))))
