import Glibc
import RunLoopKit
import StallMonitor
import StallReading
import StallReports

/// Starts a victim, kills it with SIGKILL at a random moment, and compares the files it left with its output: repeatedly, in one
/// directory, so that each start also cleans up after the previous kill.
struct KillSeries {
    let directory: String
    let count: Int

    private struct Tally {
        var kills = 0, inStall = 0, due = 0, undetected = 0, missing = 0, torn = 0, wrong = 0, unclosed = 0, orphans = 0
        /// The age of the last stored duration, in ticks, for each stall that was in progress.
        var ages: [Double] = []
    }

    func run() {
        var tally = Tally()
        var left: [ULID] = []
        for _ in 0..<count {
            let victim = KilledVictim(directory: directory)
            let moment = victim.kill(after: .milliseconds(Int.random(in: 50...1500)))
            left = judge(victim, moment, &tally)
        }
        tally.unclosed = unclosed(left)
        show(tally)
    }

    /// The number of documents that a start should have closed on the disk, and did not.
    private func unclosed(_ ids: [ULID]) -> Int {
        let store = ReportDirectory(path: directory)
        guard (try? store.closeTerminated()) != nil else { return ids.count }
        let records = (try? ReportReader(path: directory).liveProcesses().processes.count) ?? 1
        return records
            + ids.count { id in
                guard let bytes = file("\(directory)/stall-\(id).json"), let report = try? StallReport(json: bytes)
                else {
                    return true
                }
                return report.state == .ongoing
            }
    }

    private func judge(_ victim: KilledVictim, _ moment: MonotonicInstant, _ tally: inout Tally) -> [ULID] {
        tally.kills += 1
        guard let contents = try? ReportReader(path: directory).contents() else { return [] }
        tally.torn += contents.failures.count
        for failure in contents.failures { print("torn: \(failure.path ?? "") \(failure)") }
        let mine = contents.reports.filter { $0.process.pid == victim.pid }
        let begun = Set(victim.reported)
        let known = Set(mine.map { "\($0.id)" })
        tally.missing += begun.subtracting(known).count
        tally.wrong += mine.count { $0.state == .ongoing }
        guard let start = victim.stallStart else { return mine.map(\.id) }
        tally.inStall += 1
        let length = start.duration(to: moment)
        // Half a tick for the watchdog's thread to wake up on a busy machine.
        guard length >= rule.threshold + rule.tick / 2 else { return mine.map(\.id) }
        tally.due += 1
        guard let report = mine.last, report.state == .terminated, report.processEnd?.cause == .killedOrCrashed else {
            print(
                "not detected: a stall of \(length), the last report is \(mine.last.map { "\($0.state) \($0.durationNs)" } ?? "none")"
            )
            tally.undetected += 1
            return mine.map(\.id)
        }
        tally.orphans += report.stacks.isEmpty ? 1 : 0
        tally.ages.append((length - .nanoseconds(report.durationNs)) / rule.tick)
        return mine.map(\.id)
    }

    private func show(_ tally: Tally) {
        let ages = tally.ages.sorted()
        let figures = [0.5, 0.9, 0.99, 1].map { share in
            ages.isEmpty ? "-" : String(Int(ages[min(ages.count - 1, Int(Double(ages.count) * share))] * 1000)) + "‰"
        }
        print(
            "kills \(tally.kills), in mid-stall \(tally.inStall), of these past the threshold \(tally.due), not yet detected \(tally.undetected)"
        )
        print(
            "missing \(tally.missing), torn \(tally.torn), wrong \(tally.wrong), not closed by the next start \(tally.unclosed)"
        )
        print("known from the live record alone: \(tally.orphans)")
        print(
            "age of the last known duration, thousandths of a tick: p50 \(figures[0]), p90 \(figures[1]), p99 \(figures[2]), max \(figures[3])"
        )
        print("older than a tick: \(ages.count { $0 > 1 }), than two: \(ages.count { $0 > 2 })")
        exit(tally.missing + tally.torn + tally.wrong + tally.unclosed == 0 ? 0 : 1)
    }
}

/// A victim that prints its stalls until it is killed.
final class KilledVictim {
    let pid: pid_t
    private let output: Int32
    private var text: [UInt8] = []

    init(directory: String) {
        var ends: [Int32] = [0, 0]
        guard unsafe pipe(&ends) == 0 else { fail("no pipe") }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        output = ends[0]
        var actions = unsafe posix_spawn_file_actions_t()
        unsafe posix_spawn_file_actions_init(&actions)
        unsafe posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO)
        var pid: pid_t = 0
        var arguments: [UnsafeMutablePointer<CChar>?] = unsafe []
        for word in ["death-host", directory, "kill"] { unsafe arguments.append(unsafe strdup(word)) }
        unsafe arguments.append(nil)
        let status = unsafe posix_spawn(&pid, "/proc/self/exe", &actions, nil, &arguments, environ)
        guard status == 0 else { fail("no process") }
        self.pid = pid
        close(ends[1])
    }

    deinit { close(output) }

    /// Waits until it is ready, then for the delay, and kills it. Returns a time at which it was still alive.
    func kill(after delay: Duration) -> MonotonicInstant {
        while !String(decoding: text, as: UTF8.self).contains("ready"), read() {}
        sleep(delay)
        let moment = MonotonicInstant.now
        _ = Glibc.kill(pid, SIGKILL)
        var status: Int32 = 0
        unsafe waitpid(pid, &status, 0)
        while read() {}
        return moment
    }

    private var lines: [[Substring]] {
        String(decoding: text, as: UTF8.self).split(separator: "\n").map { $0.split(separator: " ") }
    }

    /// The reports that its monitor announced.
    var reported: [String] { lines.filter { $0.count == 2 && $0[0] == "began" }.map { String($0[1]) } }

    /// The begin of the stall that was in progress at the end.
    var stallStart: MonotonicInstant? {
        guard let last = lines.last(where: { ["stall", "moved"].contains($0[0]) }), last[0] == "stall", last.count == 2,
            let nanoseconds = UInt64(last[1])
        else { return nil }
        return MonotonicInstant(nanoseconds: nanoseconds)
    }

    private func read() -> Bool {
        var buffer = [UInt8](repeating: 0, count: 4096)
        let count = unsafe Glibc.read(output, &buffer, buffer.count)
        if count > 0 { text += buffer[..<count] }
        return count > 0
    }
}

func file(_ path: String) -> [UInt8]? {
    let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var bytes: [UInt8] = []
    var chunk = [UInt8](repeating: 0, count: 1 << 16)
    while true {
        let count = unsafe read(descriptor, &chunk, chunk.count)
        guard count > 0 else { return count == 0 ? bytes : nil }
        bytes += chunk[..<count]
    }
}
