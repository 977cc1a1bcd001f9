#!/usr/bin/env python3
"""Writes manual pages, in man(7), from a command's own description (--experimental-dump-help on standard input) into a directory.

A page for the command, and one for each subcommand with the subcommands that it has: NAME-SUBCOMMAND.1.
"""
import json
import pathlib
import re
import sys

SECTIONS = {"EXAMPLES", "BUDGET FILE", "FORMATS", "KEYS", "EXIT CODES"}


def escaped(text):
    """Text that groff takes as it is: no escapes of its own, no control line, and hyphens that can be copied as options."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("~", "\\(ti").replace("^", "\\(ha").replace("`", "\\(ga")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def title(word):
    """An argument of a macro."""
    return '"' + escaped(word).replace('"', '\\(dq') + '"'


def names(argument):
    return [("--" if n["kind"] == "long" else "-") + n["name"] for n in argument.get("names", [])]


def long_names(argument):
    return [n for n in names(argument) if n.startswith("--")]


def synopsis(command, path):
    parts = []
    for argument in shown(command):
        if argument["kind"] == "positional":
            word = "\\fI" + escaped(argument["valueName"]) + "\\fR" + (" ..." if argument["isRepeating"] else "")
        else:
            word = "|".join("\\fB" + escaped(n) + "\\fR" for n in long_names(argument) or names(argument))
            if argument["kind"] == "option":
                word += " \\fI" + escaped(argument["valueName"]) + "\\fR"
        parts.append("[" + word + "]" if argument["isOptional"] else word)
    if command.get("subcommands"):
        parts.append("\\fIsubcommand\\fR ...")
    return [".nh", ".HP", "\\fB" + escaped(" ".join(path)) + "\\fR " + " ".join(parts), ".hy"]


def shown(command):
    """The arguments. A flag and its opposite have one text, which is true of the flag: they are one entry."""
    found = []
    for a in command.get("arguments", []):
        if not a.get("shouldDisplay") or names(a)[-1:] in (["--help"], ["--version"]):
            continue
        if found and long_names(a) and long_names(a) == ["--no-" + n[2:] for n in long_names(found[-1])]:
            found[-1] = found[-1] | {"names": found[-1]["names"] + a["names"]}
        else:
            found.append(a)
    return found


def options(command):
    lines, section = [], None
    for argument in sorted(shown(command), key=lambda a: (a["kind"] != "positional", a.get("sectionTitle") or "")):
        if argument.get("sectionTitle") != section:
            section = argument.get("sectionTitle")
            lines += [".SS " + title(section)] if section else []
        words = [("\\fB" + escaped(n) + "\\fR") for n in names(argument)] or ["\\fI" + escaped(argument["valueName"]) + "\\fR"]
        value = " \\fI" + escaped(argument["valueName"]) + "\\fR" if argument["kind"] == "option" else ""
        lines += [".TP", ", ".join(words) + value]
        text = argument.get("abstract", "")
        if argument.get("allValues") and argument["kind"] == "option":
            text += " One of: " + ", ".join(argument["allValues"]) + "."
        if argument.get("defaultValue"):
            text += " Default: " + argument["defaultValue"] + "."
        lines.append(escaped(text) or "\\ ")
    return lines


def described(text):
    """The description's paragraphs; its sections of lines that stay as they are, by their titles; and what it says of exit codes."""
    lines, sections, exits = [], {}, []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        first, _, rest = block.partition("\n")
        if first.strip() in SECTIONS:
            sections[first.strip()] = [".nf"] + [escaped(line) for line in rest.split("\n")] + [".fi"]
        elif block.startswith("Exit code"):
            exits = [escaped(" ".join(block.split()))]
        elif block.strip():
            lines += [".PP", escaped(" ".join(block.split()))]
    return lines, sections, sections.pop("EXIT CODES", exits)


def headed(sections, macro):
    return [line for name, lines in sections.items() for line in [macro + " " + title(name)] + lines]


def subcommands(command):
    return [s for s in command.get("subcommands", []) if s["commandName"] != "help" and s.get("shouldDisplay", True)]


def nested(command, path):
    """The sections of a page about a command's subcommands, and theirs."""
    lines = []
    for sub in subcommands(command):
        own = path + [sub["commandName"]]
        text, parts, endings = described(sub.get("discussion", ""))
        lines += [".SH " + title(" ".join(own[1:]).upper()), escaped(sub.get("abstract", ""))] + synopsis(sub, own)
        lines += text + options(sub) + headed(parts, ".SS") + [".PP"] * bool(endings) + endings + nested(sub, own)
    return lines


def page(command, path, version):
    name = "-".join(path)
    body, sections, exits = described(command.get("discussion", ""))
    lines = ['.\\" Made by scripts/man from what the command says of itself.']
    lines.append(".TH " + title(name.upper()) + ' 1 "" ' + title("stall-monitor " + version) + " " + title("stall-monitor"))
    lines += [".SH NAME", escaped(name) + " \\- " + escaped(command.get("abstract", "").rstrip("."))]
    lines += [".SH SYNOPSIS"] + synopsis(command, path)
    lines += [".SH DESCRIPTION", escaped(command.get("abstract", ""))] + body
    if shown(command):
        lines += [".SH OPTIONS"] + options(command)
    if len(path) == 1:
        lines.append(".SH SUBCOMMANDS")
        for sub in subcommands(command):
            lines += [".TP", "\\fB" + escaped(name + "-" + sub["commandName"]) + "\\fR(1)", escaped(sub.get("abstract", ""))]
    else:
        lines += nested(command, path)
    lines += [".SH EXIT STATUS"] + exits + headed(sections, ".SH")
    if len(path) == 1:
        others = ["-".join(path + [s["commandName"]]) for s in subcommands(command)]
    else:
        others = [path[0]]
    lines += [".SH SEE ALSO", ", ".join("\\fB" + escaped(o) + "\\fR(1)" for o in others)]
    return name, "\n".join(lines) + "\n"


def main():
    folder, version = pathlib.Path(sys.argv[1]), sys.argv[2]
    root = json.load(sys.stdin)["command"]
    folder.mkdir(parents=True, exist_ok=True)
    path = [root["commandName"]]
    pages = [page(root, path, version)]
    pages += [page(sub, path + [sub["commandName"]], version) for sub in subcommands(root)]
    for name, text in pages:
        (folder / f"{name}.1").write_text(text, encoding="utf-8")
        print(folder / f"{name}.1")


main()
