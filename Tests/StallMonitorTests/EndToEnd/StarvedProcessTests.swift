import Foundation
import StallReports
import TestSupport
import Testing

@testable import StallMonitor

/// Processes that really get too little CPU time.
@Suite(
    "Causes of starvation",
    .serialized,
    .timeLimit(.minutes(60)),
    .repeatedWhenLate(by: .milliseconds(50))
)
struct StarvedProcessTests {
    private let directory = TemporaryDirectory(inMemory: true)

    /// The lines that the host printed.
    private func run(
        _ scenario: String,
        milliseconds: Int,
        in cgroup: String? = nil,
        after preparation: String? = nil
    ) async throws -> [String] {
        let enter = preparation ?? cgroup.map { "echo $$ > \($0)/cgroup.procs" } ?? "true"
        return try await onThread { [directory] in
            try Self.run(scenario, milliseconds, enter, directory.path + "/reports")
        }
    }

    private static func run(
        _ scenario: String,
        _ milliseconds: Int,
        _ preparation: String,
        _ reports: String
    ) throws -> [String] {
        let host = URL.built("cause-host").path
        let process = Process()
        process.executableURL = URL(filePath: "/bin/sh")
        process.arguments = [
            "-c", "\(preparation) && exec \"$0\" \"$@\"", host, reports, scenario, "\(milliseconds)",
        ]
        let output = Pipe()
        process.standardOutput = output
        try process.run()
        let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        return text.split(separator: "\n").map(String.init)
    }

    private func evidence(_ lines: [String]) throws -> StallReport.Evidence {
        try JSONDecoder().decode(StallReport.Evidence.self, from: Data(try #require(lines.dropFirst(2).first).utf8))
    }

    @Test(
        "A cgroup's quota of 5 % is reported with its periods and the time that it cost",
        .enabled(if: LimitedCgroup(percent: 5) != nil, "no control group with a processor limit can be made here")
    )
    func quota() async throws {
        // So little that a busy machine gives the process more.
        let cgroup = try #require(LimitedCgroup(percent: 5))
        let lines = try await run("compute", milliseconds: 2_000, in: cgroup.path)
        #expect(lines.first == "starved", "\(lines)")
        let processors = try #require(try evidence(lines).processors)
        #expect(processors.quotaPercent == 5 && (processors.throttledPeriods ?? 0) > 0)
        // The kernel counts a throttled period at its end, and its time once the process may run again: the last period may have no time yet.
        let throttledNs = try #require(processors.throttledNs)
        #expect(throttledNs > 0 || (throttledNs == 0 && processors.throttledPeriods == 1))
        // On a machine that gives the process even less, the quota is not the cause.
        let words = try scarcity(in: evidence(lines), of: processors)
        #expect(lines.dropFirst().first?.contains(words) == true, "\(words): \(lines)")
    }

    @Test("With a default thread stack limit of 64 KiB, the monitor's threads and a worker have enough room")
    func smallStacks() async throws {
        let lines = try await run("sleep", milliseconds: 600, after: "ulimit -s 64")
        #expect(lines.first == "blocked", "\(lines)")
    }

    @Test("More busy threads than CPUs are reported with their number")
    func crowd() async throws {
        let lines = try await run("hogs", milliseconds: 1_500)
        #expect(lines.first == "starved", "\(lines)")
        let processors = try #require(try evidence(lines).processors)
        #expect((processors.runnable ?? 0) > (processors.count ?? 0))
        let words = try scarcity(in: evidence(lines), of: processors)
        #expect(lines.dropFirst().first?.contains(words) == true, "\(words): \(lines)")
    }

    /// What the sentence must say for these figures. On a virtual machine the hypervisor can take more time than the
    /// other threads do, and the tests may be confined to some of the CPUs, or to a quota.
    private func scarcity(in evidence: StallReport.Evidence, of processors: StallReport.Processors) throws -> String {
        let runDelay = try #require(evidence.runDelayNs)
        let waited = try #require(evidence.windowNs) - #require(evidence.cpuNs) - runDelay
        let delay = max(runDelay, waited)
        let (throttled, periods) = (processors.throttledPeriods ?? 0, processors.periods ?? 0)
        if throttled > 0, throttled * 2 >= periods || (processors.throttledNs ?? 0) * 3 >= delay {
            return "throttled by the cgroup quota of "
        }
        let count = try #require(processors.count)
        if let stolen = processors.stealNs, stolen / Int64(count) * 2 >= delay { return ", while the hypervisor gave " }
        if let allowed = processors.allowed, allowed < count { return "; it may use \(allowed) of \(count) CPUs only" }
        return " runnable threads on \(count) CPU"
    }
}

/// A cgroup with a limit, removed with the value. Needs root, and a machine that permits it.
private final class LimitedCgroup {
    let path: String

    init?(percent: Int) {
        let name = "stall-monitor-tests-\(UUID())"
        let controllers = (try? String(contentsOfFile: "/sys/fs/cgroup/cgroup.subtree_control", encoding: .utf8)) ?? ""
        let isVersionTwo = controllers.split(whereSeparator: \.isWhitespace).contains("cpu")
        let candidates = isVersionTwo ? ["/sys/fs/cgroup"] : ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"]
        guard let base = candidates.first(where: { unsafe mkdir("\($0)/\(name)", 0o755) == 0 }) else {
            return nil
        }
        path = "\(base)/\(name)"
        let files =
            isVersionTwo
            ? [("cpu.max", "\(percent * 1_000) 100000")]
            : [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "\(percent * 1_000)")]
        for (file, value) in files {
            guard let handle = FileHandle(forWritingAtPath: "\(path)/\(file)") else { return nil }
            handle.write(Data(value.utf8))
        }
    }

    deinit { unsafe rmdir(path) }
}
