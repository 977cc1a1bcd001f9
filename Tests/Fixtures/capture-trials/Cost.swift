import CTrials
import Foundation
import StackCapture

/// The cost of a capture of 60 frames for the capturing thread, compared with programs that do the same for another process.
struct Cost {
    private let part: Part

    init(_ part: Part) { self.part = part }

    func run(_ findings: inout Findings) {
        guard let capturer = try? StackCapturer(deadline: .seconds(5)) else {
            return findings.fail("no capturer")
        }
        let reader = unsafe trial_clock_reader_start(Int32(Pause.depth), 1)
        let running = ThreadIdentity(unsafe trial_clock_reader_thread(reader))
        let asleep = ThreadIdentity(trial_sleeper_start(Int32(Pause.depth)))
        trial_stay_on(0)
        let frames = (try? capturer.capture(running).get())?.frames.count ?? 0
        print(
            "Cost of a capture of \(frames) frames, µs of the capturing thread's processor time (wall time)"
        )
        show("signal and copy", of: running, capturer, &findings)
        show("quiet", of: asleep, capturer, &findings)
        unsafe trial_clock_reader_finish(reader)
        if !part.isShort { compare() }
    }

    private func show(
        _ name: String,
        of identity: ThreadIdentity,
        _ capturer: StackCapturer,
        _ findings: inout Findings
    ) {
        var (spent, elapsed, unwinding): ([Double], [Double], [Double]) = ([], [], [])
        for _ in 0..<(part.isShort ? 100 : 3000) {
            let (cpu, wall) = (trial_own_cpu_ns(), trial_now_ns())
            let stack = try? capturer.capture(identity).get()
            elapsed.append(Double(trial_now_ns() - wall) / 1000)
            spent.append(Double(trial_own_cpu_ns() - cpu) / 1000)
            unwinding.append(Double(stack?.cost.unwindNanoseconds ?? 0) / 1000)
            findings.expect(stack?.isComplete == true, "\(name): a capture is not whole")
        }
        let (cpu, wall) = (Distribution(spent), Distribution(elapsed))
        print(
            "  \(column(name, 18)) p50\(column(cpu.median, 8)) (\(column(wall.median, 8)))"
                + "   p99\(column(cpu.quantile(0.99), 8)) (\(column(wall.quantile(0.99), 8)))"
                + "   of it unwinding\(column(Distribution(unwinding).median, 7))   goal: p50 150"
        )
    }

    /// The same two threads in a separate process.
    private func compare() {
        let host = Process()
        let pipe = Pipe()
        host.executableURL = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath()
        host.arguments = ["stand"]
        host.standardOutput = pipe
        guard (try? host.run()) != nil else { return }
        defer { host.terminate() }
        _ = pipe.fileHandleForReading.availableData
        let process = String(host.processIdentifier)
        let programs = [
            ["eu-stack", "-p", process], ["eu-stack", "-q", "-p", process],
            ["gdb", "-nx", "-batch", "-p", process, "-ex", "thread apply all bt"],
        ]
        for program in programs { show(program) }
    }

    private func show(_ program: [String]) {
        var (spent, elapsed): ([Double], [Double]) = ([], [])
        for _ in 0..<5 {
            var (wall, cpu): (UInt64, UInt64) = (0, 0)
            var arguments = unsafe program.map { unsafe UnsafePointer<CChar>?(strdup($0)) } + [nil]
            let status = unsafe trial_run_program(&arguments, &wall, &cpu)
            for index in program.indices { unsafe free(UnsafeMutablePointer(mutating: arguments[index])) }
            guard status == 0 else {
                return print("  \(column(program[0], 18)) not here (status \(status))")
            }
            spent.append(Double(cpu) / 1000)
            elapsed.append(Double(wall) / 1000)
        }
        let name = program.prefix { $0 != "-p" && $0 != "-nx" }.joined(separator: " ")
        print(
            "  \(column(name, 18)) p50\(column(Distribution(spent).median, 8, digits: 0)) "
                + "(\(column(Distribution(elapsed).median, 8, digits: 0)))   the whole process, with names"
        )
    }
}

/// Stays alive for inspection by other programs: one thread computes, one sleeps.
enum Stand {
    static func run() -> Never {
        _ = unsafe trial_clock_reader_start(Int32(Pause.depth), -1)
        _ = trial_sleeper_start(Int32(Pause.depth))
        print("standing")
        while true { sleep(1000) }
    }
}
