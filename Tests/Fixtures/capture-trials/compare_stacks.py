"""Run by gdb, which runs `capture-trials exact`: compares each stack that the program has captured with gdb's stack of the same
thread at the same place. Frames of calls that were inlined, or replaced by a tail call, are left out: they have no place on the stack.

    gdb -batch -nx -x compare_stacks.py --args capture-trials exact [--short] [SCENE...]
"""

import collections
import struct

import gdb

FRAMES = 2048
BEGINNINGS = ("clone3", "__clone3", "clone", "_start")
SET_ASIDE = (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME)


class Ours:
    """What the program has published: see exact.c."""

    def __init__(self, memory, at):
        header = struct.unpack("6i64s", memory.read_memory(at, 88).tobytes())
        self.thread, self.round, count, self.frozen, self.complete, self.refused = header[:6]
        self.scene = header[6].split(b"\0")[0].decode()
        self.frames = list(struct.unpack("%dQ" % count, memory.read_memory(at + 88, count * 8).tobytes())) if count else []
        found = memory.read_memory(at + 88 + FRAMES * 8, count).tobytes() if count else b""
        self.hiding = sum(found)


def name_at(address):
    text = gdb.execute("info symbol 0x%x" % address, to_string=True)
    return text.split(" in section")[0].strip() if " in section" in text else "?"


def missed_caller(frame):
    """The return address that gdb has missed in a function that was interrupted after it had released its frame; otherwise None.
    The address is on top of the stack, but gdb does not recognise the last instructions of code without a table."""
    memory = gdb.selected_inferior()
    try:
        before, code = bytes(memory.read_memory(frame.pc() - 1, 2))
        stack = int(frame.read_register("sp")) & (1 << 64) - 1
        caller = struct.unpack("Q", memory.read_memory(stack, 8).tobytes())[0]
        outer = int(frame.older().read_register("sp")) & (1 << 64) - 1
    except (gdb.error, AttributeError):
        return None
    leaves = code == 0xC3 or (before == 0x5D and code in (0xE9, 0xEB))  # ret; pop %rbp, then jmp
    return caller if leaves and outer != stack + 8 and "x86-64" in frame.architecture().name() else None


def theirs_of(thread_number):
    thread = next((t for t in gdb.selected_inferior().threads() if t.ptid[1] == thread_number), None)
    if thread is None:
        return [], "no such thread", 0, None
    thread.switch()
    frames = []
    frame = gdb.newest_frame()
    stack = int(frame.read_register("sp")) & (1 << 64) - 1
    reason, missed = "", None
    while frame is not None:
        if frame.type() not in SET_ASIDE:
            frames.append(frame.pc())
            if frame.newer() is not None and frame.newer().type() == gdb.SIGTRAMP_FRAME:
                missed = missed or missed_caller(frame)
        try:
            older = frame.older()
        except gdb.error as error:
            older, reason = None, str(error)
        if older is None and not reason:
            reason = gdb.frame_stop_reason_string(frame.unwind_stop_reason())
        frame = older
    return frames, reason, stack, missed


def below_freezing(frames):
    for index, address in enumerate(frames[:8]):
        if name_at(address).startswith("trial_frozen"):
            return frames[index + 1:]
    return frames


def is_within(part, whole):
    """Whether `part` is what remains of `whole` after some elements are removed."""
    rest = iter(whole)
    return bool(part) and all(element in rest for element in part)


def judge(ours, theirs, stack, missed):
    """The result in one word. Equal; hidden: ours says that a caller may be missing, and one is; lost: only gdb does not reach the
    thread's beginning, or passes through addresses that are not code, or skips callers; astray: neither reaches it; refused: ours
    names the reason why there is no stack; unequal: everything else."""
    if ours.refused:
        return "refused" if ours.refused == 1 else "unequal"
    # A frozen thread loops in its handler, from one instruction to
    # the next, and may still be about to leave the capture's handler.
    mine, other = (below_freezing(ours.frames), below_freezing(theirs)) if ours.frozen else (ours.frames, theirs)
    if mine == other and mine:
        return "equal"
    if ours.hiding and len(other) - len(mine) <= ours.hiding and is_within(mine, other):
        return "hidden"
    # All frames except those that gdb has skipped, which begin with
    # that caller; two frames are the handler's and the function's own.
    skipped = len(mine) - len(other)
    if missed is not None and skipped > 0 and mine[2:3] == [missed] and mine[:2] + mine[2 + skipped:] == other:
        return "lost"
    if ours.hiding and len(mine) == len(other) + 1 and is_within(other, mine):
        # A frame of ours that appears twice is an error of ours.
        at = next((i for i, address in enumerate(other) if mine[i] != address), len(other))
        return "unequal" if at > 0 and mine[at] == mine[at - 1] else "lost"
    if not all(is_code(address, stack) for address in other):
        # A wrong table: __mpn_addmul_1 and similar functions of glibc
        # push registers without declaring it. gdb may recover by chance.
        return "lost" if ours.complete and all(is_code(address, stack) for address in mine) else "astray"
    if other and name_at(other[-1]).split(" ")[0] in BEGINNINGS:
        return "unequal"
    return "lost" if ours.complete else "astray"


def is_code(address, stack):
    """Whether the address may be code: code generated at run time has no name, but is not on a stack."""
    return name_at(address) != "?" or (65536 < address < 1 << 47 and abs(address - stack) > 8 << 20)


def show(verdict, ours, theirs, reason):
    print("%s: %s, round %d, ours %s, gdb: %s" % (verdict, ours.scene, ours.round, "complete" if ours.complete else "cut", reason))
    for index in range(max(len(ours.frames), len(theirs))):
        mine = ours.frames[index] if index < len(ours.frames) else None
        other = theirs[index] if index < len(theirs) else None
        if index > 30 and mine == other:
            continue
        text = ["%x %s" % (a, name_at(a)[:44]) if a is not None else "" for a in (mine, other)]
        print("  %s %-62s %s" % (" " if mine == other else "≠", text[0], text[1]))


def main():
    for setting in ("pagination off", "confirm off", "backtrace past-main on", "backtrace limit 2000", "print inferior-events off",
                    "print thread-events off", "debuginfod enabled off", "follow-fork-mode parent", "detach-on-fork on",
                    "environment SWIFT_BACKTRACE enable=no", "style enabled off", "width 0"):
        gdb.execute("set " + setting, to_string=True)
    gdb.execute("handle all nostop noprint pass", to_string=True)
    gdb.execute("handle SIGTRAP stop print nopass", to_string=True)
    gdb.execute("run", to_string=True)
    verdicts, frames, scenes = collections.Counter(), 0, {}
    at = None
    while gdb.selected_inferior().pid:
        if at is None:
            at = int(gdb.parse_and_eval("(unsigned long)&trial_published_stack"))
        ours = Ours(gdb.selected_inferior(), at)
        theirs, reason, stack, missed = theirs_of(ours.thread)
        verdict = judge(ours, theirs, stack, missed)
        verdicts[verdict] += 1
        scenes.setdefault(ours.scene, collections.Counter())[verdict] += 1
        frames += len(ours.frames)
        if verdict not in ("equal", "refused") and scenes[ours.scene][verdict] <= 2:
            show(verdict, ours, theirs, reason)
        gdb.execute("continue", to_string=True)
    for scene, counts in scenes.items():
        print("  %-40s %s" % (scene, ", ".join("%d %s" % (count, verdict) for verdict, count in counts.items())))
    total = sum(verdicts.values())
    print("EXACT %d scenes, %d captures, %d frames: %d equal, %d with a hidden caller that is marked, %d where gdb lost its way, "
          "%d where neither did, %d refused by name, %d unequal" % (len(scenes), total, frames, verdicts["equal"], verdicts["hidden"], verdicts["lost"],
                                             verdicts["astray"], verdicts["refused"], verdicts["unequal"]))
    ended = str(gdb.parse_and_eval("$_exitcode")) == "0"
    if not ended:
        print("  the program did not come to its end")
    met = total > 0 and ended and verdicts["unequal"] == 0
    print("RESULT exact: %s" % ("met" if met else "not met"))
    gdb.execute("quit %d" % (0 if met else 1))


main()
