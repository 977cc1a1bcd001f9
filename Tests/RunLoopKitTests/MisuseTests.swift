import LoopTestSupport
import Testing

/// Errors that end the process: each is printed on stderr with the program's line that caused it, in a debug and in
/// an optimised build.
@Suite(.timeLimit(.minutes(10)))
struct MisuseTests {
    @Test("A programmer error ends the process with a message and the caller's line")
    func isTold() throws {
        let program = try Fixture.loopCounts()
        let list = try Fixture.run(command: "'\(program)' misuse").lines.map { $0.split(separator: " ") }
        #expect(list.count > 10)
        for misuse in list {
            let (name, line) = (misuse[0], misuse[1])
            let text = Self.texts[String(name)] ?? "no text is expected"
            let command = "env SWIFT_BACKTRACE=enable=no timeout 60 '\(program)' misuse \(name)"
            let run = try Fixture.run(command: "{ \(command) 2>&1; }")
            let place = line == "0" ? "" : "LoopCounts/Misuse.swift:\(line): Fatal error: RunLoopKit: "
            #expect(run.lines.contains { $0.contains(place + text) }, "\(name): \(run.lines)")
            // A trap, as the shell reports it: 128 plus SIGILL, or SIGTRAP.
            #expect([132, 133].contains(run.status >> 8), "\(name): status \(run.status)")
        }
    }

    private static let noMode = "What is to be performed names at least one mode."
    private static let wrongThread = "A run loop is run by its own thread; use `perform` to have work done there."

    private static let texts = [
        "run-elsewhere": wrongThread,
        "run-for-elsewhere": wrongThread,
        "perform-in-no-mode": noMode,
        "request-in-no-mode": noMode,
        "wait-in-no-mode": noMode,
        "delay-in-no-mode": noMode,
        "before-no-sleep": "Work before a sleep names at least one activity.",
        "join-itself": "A worker cannot wait for its own end.",
        "port-request-in-common": "A request waits in one mode, not in the common ones; name it.",
        "trace-of-nothing": "A trace keeps at least one transition.",
        "activities-without-room": "A sequence of activities needs room for one.",
        "no-such-component": "A message has no component 1; it has 1.",
        "too-many-modes": "A loop can have 65536 modes; '65535' is one more: reuse names.",
        "signal-handler":
            "In a signal handler nothing of RunLoopKit or StallMonitor may be called but EventRunLoop.wakeUp().",
    ]
}
