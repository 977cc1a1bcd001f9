import Glibc

// The loop's costs as counts, which are the same on every machine: allocations and system
// calls for one operation in the steady state. Without arguments it runs every scenario under
// strace and prints lines of name and value; with a scenario's name it runs that scenario.
//
//   NAME.allocations   by the loop's thread
//   NAME.calls         system calls by the loop's thread; calls of epoll among them as NAME.epoll
//   NAME.wakes         system calls by other threads that wake the loop
//
// With `misuse NAME` it makes a mistake. It is part of this program because the message must also appear in optimised builds.

let wanted = CommandLine.arguments.dropFirst().first

if wanted == "misuse" {
    Misuse.commit(CommandLine.arguments.dropFirst(2).first)
    exit(0)
}

if let scenario = scenarios.first(where: { $0.name == wanted }) {
    scenario.run(Meter(scenario.name))
    exit(0)
}

#if DEBUG
    // A debug build makes allocations that an optimised build does not make.
    say("optimised", 0)
#else
    say("optimised", 1)
#endif
for (name, _) in scenarios {
    guard let trace = SystemCallTrace.of(name) else {
        print("\(name): no trace; is strace there, and allowed to trace?")
        exit(1)
    }
    let own = trace.own.values.reduce(0, +)
    let epoll = trace.own.filter { $0.key.hasPrefix("epoll_") && $0.key.contains("wait") }.values.reduce(0, +)
    say("\(name).calls", Double(own) / Double(Meter.operations))
    say("\(name).epoll", Double(epoll) / Double(Meter.operations))
    let wakes = ["epoll_ctl", "write", "tgkill"].reduce(0) { $0 + (trace.others[$1] ?? 0) }
    say("\(name).wakes", Double(wakes) / Double(Meter.operations))
}
