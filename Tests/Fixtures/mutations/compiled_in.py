"""Writes mutations into source text so that one build contains all of them, and an environment variable activates one.

A mutation is two versions of a line. The tokens in which they differ are widened to a whole expression, which becomes
`(mutant(7) ? (after) : (before))`; a statement becomes `if (mutant(7)) { after } else { before }`. Lines keep their numbers."""
import re

# The environment variable with the number of the active mutation.
VARIABLE = "MUTANT"
# In a line that is written by hand: true if the mutation is active.
BY_HAND = "MUTANT"

TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*"|\w+|\s+|->|&&|\|\||==|!=|<=|>=|<<|>>|&\+|&-|\+=|-=|\.\.\.|\.\.<|\?\?|[^\w\s]'
)
OPEN, CLOSE = "([{", ")]}"
# An expression begins after one of these, and ends before one of those.
BEFORE_IT = set("guard if while return let var where else in case = += -= && || , ; ? : { ( [ ??".split())
AFTER_IT = set("&& || , ; ? : { else } ) ] = where ??".split())
STATEMENT = re.compile(r"(if|try|_ =|\w+ = |errno|unsafe|word\.|state\.|\(void\))")

SWIFT = """import Glibc

private let played = unsafe getenv("{variable}").flatMap {{ unsafe Int32(String(cString: $0)) }} ?? -1

@inline(never) @usableFromInline func mutant(_ number: Int32) -> Bool {{ number == played }}
"""
# Read before main: a signal handler must not call getenv. Declared, not included: a file's own #define comes before its first #include.
C = """extern char *getenv(const char *); extern int atoi(const char *); static int played_mutant = -1;\
 __attribute__((constructor(101))) static void read_played_mutant(void)\
 {{ const char *text = getenv("{variable}"); if (text) played_mutant = atoi(text); }}\
 __attribute__((unused)) static inline int mutant(int number) {{ return number == played_mutant; }}
#line 1
"""


def helper(is_c):
    """What declares `mutant`: the start of a C file, or a Swift file of each module."""
    return (C if is_c else SWIFT).format(variable=VARIABLE)


def compiled_in(text, mutations, is_c):
    """The text with these (number, mutation) in it, and the names of those that could not be inserted."""
    edits, left_out = [], []
    for number, mutation in mutations:
        edit = edit_of(text, number, mutation, is_c)
        if edit is None or any(edit[0] < end and start < edit[1] for start, end, _ in edits):
            left_out.append(mutation.name)
        else:
            edits.append(edit)
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text, left_out


def edit_of(text, number, mutation, is_c):
    """The place of the change and its new text: (start, end, new)."""
    at = text.index(mutation.before)
    if mutation.by_hand:
        return at, at + len(mutation.before), mutation.by_hand.replace(BY_HAND, f"mutant({number})")
    line_start = text.rfind("\n", 0, at) + 1
    rest = text[at + len(mutation.before) : text.find("\n", at + len(mutation.before))]
    old = TOKEN.findall(text[line_start:at] + mutation.before + rest)
    new = TOKEN.findall(text[line_start:at] + mutation.after + rest)
    span = expression(old, new)
    if span is None:
        return None
    low, high, high_new = span
    inserted = choice(old, new, span, number, is_c)
    start = line_start + len("".join(old[:low]))
    return start, line_start + len("".join(old[:high])), inserted


def expression(old, new):
    """The smallest whole expression in which the two differ: from `low` to `high` in the old tokens, to `high_new` in the new ones."""
    low = next(k for k in range(len(old) + 1) if old[k : k + 1] != new[k : k + 1])
    same = 0
    while same < min(len(old), len(new)) - low and old[-1 - same] == new[-1 - same]:
        same += 1
    high, high_new = len(old) - same, len(new) - same
    for _ in range(4):
        low = widened_left(old, low)
        end = widened_right(old, high)
        high, high_new = end, high_new + end - high
        depths = balance(old[low:high]), balance(new[low:high_new])
        if depths == ((0, 0), (0, 0)):
            return low, high, high_new
        # A bracket is open: one token further out.
        if any(lowest < 0 for _, lowest in depths) and low > 0:
            low -= 1
        elif high < len(old):
            high, high_new = high + 1, high_new + 1
    return None


def balance(tokens):
    depth = lowest = 0
    for token in tokens:
        depth += (token in OPEN) - (token in CLOSE)
        lowest = min(lowest, depth)
    return depth, lowest


def widened_left(tokens, at):
    depth = 0
    while at > 0:
        token = tokens[at - 1]
        if token in CLOSE:
            depth += 1
        elif token in OPEN:
            if depth == 0:
                break
            depth -= 1
        elif depth == 0 and token in BEFORE_IT:
            break
        at -= 1
    return at


def widened_right(tokens, at):
    depth = 0
    while at < len(tokens):
        token = tokens[at]
        if token in OPEN:
            # The block that a condition ends at.
            if token == "{" and depth == 0 and tokens[at - 1 : at] != ["."]:
                break
            depth += 1
        elif token in CLOSE:
            if depth == 0:
                break
            depth -= 1
        elif depth == 0 and token in AFTER_IT:
            break
        at += 1
    return at


def choice(old, new, span, number, is_c):
    low, high, high_new = span
    before, after = "".join(old[low:high]).strip(), "".join(new[low:high_new]).strip()
    padding = re.match(r"\s*", "".join(old[low:high])).group(), re.search(r"\s*$", "".join(old[low:high])).group()
    end = ";" if is_c else ""
    is_line = not "".join(old[:low]).strip() and not "".join(old[high:]).strip().rstrip(";")
    if is_line and (STATEMENT.match(before) or STATEMENT.match(after) or ";" in after):
        return f"{padding[0]}if (mutant({number})) {{ {after}{end} }} else {{ {before}{end} }}{padding[1]}"
    # A list of conditions is one condition in an expression.
    if not is_c and "let " not in before and old[low - 1 : low] != ["("]:
        before, after = conjunction(before), conjunction(after)
    return f"{padding[0]}(mutant({number}) ? ({after or 'true'}) : ({before or 'true'})){padding[1]}"


def conjunction(text):
    depth, parts = 0, []
    for token in TOKEN.findall(text):
        depth += (token in OPEN) - (token in CLOSE)
        parts.append(" &&" if token == "," and depth == 0 else token)
    return "".join(parts)
