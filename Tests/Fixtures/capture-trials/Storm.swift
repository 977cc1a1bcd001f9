import CTrials
import Foundation
import StackCapture

/// Captures under loads that hold all kinds of locks, and others. No capture may hang, crash, leak or show a wrong frame.
struct Storm {
    private let part: Part
    private let captures: Int

    init(_ part: Part) {
        self.part = part
        captures = part.isShort ? 2_000 : 1_000_000
    }

    private struct Load {
        var name: String
        var kind: trial_load
        var work: trial_work?
        /// The share of all captures. Captures of processes and threads that begin and end take ten times as long.
        var weight: Int { [TRIAL_LOAD_FORK, TRIAL_LOAD_CHURN].contains(kind) ? 1 : 9 }
    }

    private static let loads = [
        Load(name: "malloc", kind: TRIAL_LOAD_MALLOC), Load(name: "dlopen", kind: TRIAL_LOAD_RELOAD),
        Load(name: "dl_iterate_phdr", kind: TRIAL_LOAD_ITERATE),
        Load(name: "throw", kind: TRIAL_LOAD_THROW),
        Load(name: "stdio", kind: TRIAL_LOAD_STDIO), Load(name: "locks", kind: TRIAL_LOAD_LOCKS),
        Load(name: "fork", kind: TRIAL_LOAD_FORK), Load(name: "signals", kind: TRIAL_LOAD_SIGNALS),
        Load(name: "doze", kind: TRIAL_LOAD_DOZE), Load(name: "churn", kind: TRIAL_LOAD_CHURN),
        Load(name: "untabled", kind: TRIAL_LOAD_UNTABLED),
        Load(name: "JSON", kind: TRIAL_LOAD_CUSTOM, work: { decodeJSON() }),
        Load(name: "collections", kind: TRIAL_LOAD_CUSTOM, work: { churnCollections() }),
    ]

    func run(_ findings: inout Findings) {
        trial_handle_prof()
        guard let capturer = try? StackCapturer(deadline: .milliseconds(200)) else {
            return findings.fail("no capturer")
        }
        let plugins = try? Plugins()
        defer { plugins?.remove() }
        findings.expect(plugins != nil, "plugins are compiled")
        let loads = Self.loads.filter {
            part.includes($0.name) && (plugins != nil || $0.kind != TRIAL_LOAD_RELOAD)
        }
        trial_watchdog_start(60_000_000_000)
        print(
            "Storm: \(captures) captures, MALLOC_ARENA_MAX=\(ProcessInfo.processInfo.environment["MALLOC_ARENA_MAX"] ?? "")"
        )
        // Memory and descriptors that are kept after a first run are not leaks.
        for load in loads { _ = weather(load, part.isShort ? 10 : 50, plugins, capturer) }
        let before = Holdings.now()
        let whole = loads.reduce(0) { $0 + $1.weight }
        for load in loads {
            let tally = weather(load, captures * load.weight / whole + 1, plugins, capturer)
            print("  \(column(load.name, 16))\(tally)")
            findings.expect(
                tally.wrong.isEmpty,
                "\(load.name): \(tally.wrong.count) wrong, the first: \(tally.wrong[0])"
            )
        }
        let after = Holdings.now(awaiting: before.threads)
        print("  before: \(before)\n  after:  \(after)\n  \(capturer.counters)")
        findings.expect(after.descriptors == before.descriptors, "no descriptor is left over")
        findings.expect(after.threads <= before.threads, "no thread is left over")
        findings.expect(after.residentKiB < before.residentKiB + 32 << 10, "memory does not grow")
        findings.expect(
            capturer.counters.signalsPassedOn > 0 || !part.includes("signals"),
            "the application's SIGPROF reaches it"
        )
    }

    private func weather(
        _ load: Load,
        _ captures: Int,
        _ plugins: Plugins?,
        _ capturer: StackCapturer
    ) -> Tally {
        let storm = unsafe trial_storm_start(load.kind, plugins?.folder ?? "", load.work)
        var tally = Tally(
            isChurn: load.kind == TRIAL_LOAD_CHURN,
            mayLackTables: load.kind == TRIAL_LOAD_RELOAD
        )
        let began = trial_now_ns()
        // On a busy machine, short-lived threads can be gone before each of many attempts. They are then tried for up to a minute.
        func goesOn(after attempts: Int) -> Bool {
            // If nearly all attempts fail, the count would never be reached.
            if attempts < captures * 4 { return tally.stacks < captures }
            return tally.isChurn && tally.stacks == 0 && trial_now_ns() - began < 60_000_000_000
        }
        var attempts = 0
        while goesOn(after: attempts) {
            let thread = unsafe trial_storm_thread(storm, Int32(attempts % Int(TRIAL_STORM_THREADS)))
            tally.note(capturer.capture(ThreadIdentity(thread)))
            trial_watchdog_feed()
            attempts += 1
        }
        tally.seconds = Double(trial_now_ns() - began) / 1e9
        tally.rounds = unsafe trial_storm_rounds(storm)
        unsafe trial_storm_finish(storm)
        // The number of short-lived threads that live long enough depends on the machine.
        if tally.stacks < (tally.isChurn ? 1 : captures) {
            tally.wrong.append("only \(tally.stacks) stacks, failures \(tally.failures)")
        }
        return tally
    }
}

@inline(never)
private func decodeJSON() {
    struct Item: Codable {
        var id: Int
        var name: String
        var tags: [String]
    }
    let items = (0..<50).map { Item(id: $0, name: "item \($0)", tags: ["a", "b\($0)"]) }
    guard let document = try? JSONEncoder().encode(items) else { return }
    precondition((try? JSONDecoder().decode([Item].self, from: document))?.count == 50)
}

@inline(never)
private func churnCollections() {
    var counts: [String: [Int]] = [:]
    for number in 0..<500 { counts["key \(number % 37)", default: []].append(number) }
    let total = counts.values.map { $0.reduce(0, +) }.sorted().reduce(0, &+)
    precondition(total == 124_750)
}
