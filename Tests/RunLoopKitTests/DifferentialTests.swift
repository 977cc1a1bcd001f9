import LoopTestSupport
import TestSupport
import Testing

/// Compares the loop with Foundation's: random scripts of loop operations run on both, and the traces are compared. The program
/// can run any number: `LoopDifferential --scripts 100000 --seed 1`. It prints the seed of each script that differs, and
/// `--script-seed` runs only that one.
@Suite(.timeLimit(.minutes(10)))
struct DifferentialTests {
    @Test(
        "R1–R51: random scripts behave as on Foundation's loop, apart from known differences",
        arguments: [1, nil]
    )
    func scripts(seed: UInt64?) async throws {
        let seed = seed ?? .random(in: 1...1_000_000)
        let run = try await differential("--scripts 300 --seed \(seed)")
        #expect(run.status == 0, "seed \(seed):\n\(run.lines.joined(separator: "\n"))")
        #expect(run.number("scripts") == 300)
        #expect(run.number("different") == 0)
        // A comparison without events would also find no differences.
        for event in [
            "turn", "sleep", "source", "timer", "observer", "block", "nestedRun", "doneByOtherThread",
            "doneWhileAsleep",
        ] {
            #expect(run.number(event) > 20, "\(event)")
        }
        for result in ["finished", "stopped", "timedOut", "handledSource"] {
            #expect(run.number(result) > 10, "\(result)")
        }
    }

    @Test("R10, R16, R58: so do scripts on main threads, with work for the main queue")
    func mainThreadScripts() async throws {
        let seed = Int.random(in: 1...1_000_000)
        let run = try await differential("--main --scripts 100 --seed \(seed)")
        // Real threads feed Foundation's main queue: on a busy machine one of them may be late. A real difference occurs each time.
        let again = run.lines.compactMap { $0.firstMatch(of: /DIFFERENT.*--script-seed (\d+)/).map { String($0.1) } }
        for script in again {
            var rerun = try await differential("--main --script-seed \(script)")
            for _ in 0..<4 where rerun.status != 0 { rerun = try await differential("--main --script-seed \(script)") }
            #expect(rerun.status == 0, "seed \(seed):\n\(run.lines.joined(separator: "\n"))")
        }
        #expect(run.status == 0 || !again.isEmpty, "seed \(seed):\n\(run.lines.joined(separator: "\n"))")
        #expect(run.number("scripts") == 100)
        // How many there are depends on the scripts.
        #expect(run.number("mainQueueBlock") > 0)
    }

    @Test("A script on the main loop leaves nothing for the next one, not even work for the main queue")
    func mainThreadScriptsInARow() async throws {
        // Scripts 78 and 157 end with such work. What they leave makes a difference each time, a late thread only now and then.
        var run = try await differential("--main --scripts 200 --seed 6")
        for _ in 0..<4 where run.status != 0 { run = try await differential("--main --scripts 200 --seed 6") }
        #expect(run.status == 0, "\(run.lines.joined(separator: "\n"))")
        #expect(run.number("scripts") == 200)
    }

    @Test(
        "On the real clock, callouts that nest, stop, invalidate and re-arm at once behave as a model permits"
    )
    func realClock() async {
        var counts: [String: Int] = [:]
        var seeds = SplitMix64.ofThisRun()
        for _ in 0..<(testsAllForms ? 2000 : 100) {
            let seed = seeds.next()
            let played = await onLoopThread { loop in
                let script = RealClockScript(loop, seed: seed)
                script.play()
                return (script.problems, script.counts)
            }
            #expect(played.0.isEmpty, "seed \(seed): \(played.0.prefix(5))")
            counts.merge(played.1, uniquingKeysWith: +)
        }
        for event in ["turn", "source", "timer", "block", "re-armed", "stop", "nested", "invalidated"] {
            #expect(counts[event, default: 0] > 20, "\(event): \(counts)")
        }
        for result in ["stopped", "timedOut", "handledSource"] {
            #expect(counts[result, default: 0] > 10, "\(result): \(counts)")
        }
    }

    @Test(
        "Differences are found: two exchanged events, and a known difference that does not occur",
        arguments: ["--break", "--without lostWakeUp", "--without outerTimeout"]
    )
    func differencesAreFound(option: String) async throws {
        let run = try await differential("--scripts 500 --seed 1 --failures 1 \(option)")
        #expect(run.status != 0)
        #expect(run.number("different") > 0)
        #expect(run.lines.contains { $0.hasPrefix("DIFFERENT: script") && $0.contains("--script-seed") })
    }
}

/// On a separate thread, because the test runner has few.
private func differential(_ arguments: String) async throws -> Fixture {
    try await onLoopThread { _ in Result { try Fixture.run("LoopDifferential", arguments) } }.get()
}

extension Fixture {
    /// The number on the line that begins with a name; -1 if there is none.
    fileprivate func number(_ name: String) -> Int {
        let line = lines.first { $0.hasPrefix(name + ": ") }
        return line.flatMap { Int($0.dropFirst(name.count + 2)) } ?? -1
    }
}
