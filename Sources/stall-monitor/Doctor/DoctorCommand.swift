import ArgumentParser
import Glibc
import ProcessWatch
import StallReading
import StallReports

struct DoctorCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "doctor",
        abstract: "Checks what keeps a monitor from working fully on this machine, with a fix for each finding.",
        discussion: """
            EXAMPLES
              stall-monitor doctor
              stall-monitor doctor /var/lib/shop/stalls
              stall-monitor doctor --format json | jq '.findings[].fix'

            Checks permissions to read other processes, the clock, the kernel's counters, the report directory's mode, disk and \
            files, records of dead processes, the monitor's signal, and whether reports lack stacks, names or source lines. \
            Changes nothing.

            Exit code 0: no problem; notes do not count. 1: a problem, or the directory cannot be read. 64: wrong usage.
            """
    )

    @OptionGroup var reports: ReportsArgument
    @OptionGroup var screen: ScreenOptions

    @Option(help: "Text for people, or JSON for programs.")
    var format: OutputFormat = .text

    private struct Document: Encodable {
        let schema = "stall-doctor/1"
        let findings: [DoctorFinding]
    }

    func validate() throws { try reports.refuseAddresses() }

    func run() throws {
        let sources = reports.sources
        let machine = DoctorFacts.machine(version: StallMonitorCommand.configuration.version)
        var groups: [Group] = [(nil, Doctor(facts: machine).machine)]
        for path in sources.paths { groups.append((path, Doctor(facts: machine.withDirectory(path)).reports)) }
        switch format {
        case .text:
            let terminal = screen.terminal()
            try screen.write(Self.page(groups).wrapped(to: terminal.width, hanging: 11), on: terminal)
        case .json:
            let findings = groups.flatMap { group in
                group.findings.map { finding in
                    var finding = finding
                    finding.directory = group.directory
                    return finding
                }
            }
            try Output.writeJSON(Document(findings: findings))
        }
        try ReportSources.report(sources.hidden)
        if groups.contains(where: { $0.findings.contains { $0.level == .problem } }) { throw ExitCode.failure }
    }

    /// What was found in a directory, or about the machine.
    typealias Group = (directory: String?, findings: [DoctorFinding])

    /// All findings. If there are several directories, each shows only what is not in order, because otherwise each has the same ten lines; a last
    /// line says how many are in order.
    static func page(_ groups: [Group]) -> [StyledText] {
        let areSeveral = groups.count { $0.directory != nil } > 1
        var (text, well): ([StyledText], Int) = ([], 0)
        for (directory, findings) in groups {
            let isShort = areSeveral && directory != nil
            let shown = isShort ? findings.filter { $0.level != .ok } : findings
            if shown.isEmpty { well += 1 } else { text += lines(directory, shown) }
        }
        return well == 0 ? text : text + ["\(well == 1 ? "1 directory is" : "\(well) directories are") ok"]
    }

    static func lines(_ directory: String?, _ findings: [DoctorFinding]) -> [StyledText] {
        let head: StyledText =
            directory.map { "\(StyledText("Reports in \($0)", .bold))" } ?? "\("This machine", .bold)"
        return [head]
            + findings.flatMap { finding -> [StyledText] in
                let mark: StyledText =
                    switch finding.level {
                    case .ok: StyledText("ok", .green)
                    case .note: StyledText("note", .yellow)
                    case .problem: StyledText("problem", .red)
                    }
                let line: StyledText = "  \(mark.padded(to: 9))\(finding.found)"
                return [line] + (finding.fix.map { ["           \("→", .dim) \($0)"] } ?? [])
            } + [""]
    }
}

/// Facts about the machine and the report directory that matter to a stall monitor. Nil if they could not be read.
struct DoctorFacts: Hashable {
    /// Yama's limit for attaching to other processes (0 to 3).
    var ptraceScope: Int?
    var perfEventParanoid: Int?
    var isRoot = false
    var clockSource: String?
    var hasPressure = false
    var hasSchedstat = false
    /// Whether the kernel counts disk waits per task.
    var countsDiskWaits: Bool?
    var directory: DirectoryFacts?
    /// Why the directory cannot be read.
    var directoryError: String?
    /// This command's version.
    var version = ""

    struct DirectoryFacts: Hashable {
        var path: String
        /// The permission bits.
        var mode: UInt32 = 0o700
        var isOurs = true
        var freeBytes: UInt64?
        var freeInodes: UInt64?
        /// Files that could not be read.
        var unreadable = 0
        var runs = 0
        /// Live records of processes that have died.
        var stale = 0
        /// The number of the latest reports that were checked, and of all.
        var reports = 0
        var allReports = 0
        var withoutStack = 0
        /// The latest of those.
        var latestWithoutStack: ULID?
        var withoutNames = 0
        var withoutLines = 0
        /// Why a monitor switched itself off.
        var disarmed: [String] = []
        /// Versions of the monitors that wrote here.
        var versions: Set<String> = []
        var lostWrites: Int64 = 0
        /// Processes that block SIGPROF in the main thread.
        var signalBlocked: [Int32] = []
    }
}

extension DoctorFacts {
    /// How many of the latest reports are checked for missing stacks, names and lines.
    private static let sample = 50

    func withDirectory(_ path: String) -> DoctorFacts {
        var facts = self
        do throws(ReportError) {
            facts.directory = try Self.look(at: path)
        } catch {
            facts.directoryError = CommandFailure(error).message
        }
        return facts
    }

    static func machine(version: String) -> DoctorFacts {
        DoctorFacts(
            ptraceScope: number("/proc/sys/kernel/yama/ptrace_scope"),
            perfEventParanoid: number("/proc/sys/kernel/perf_event_paranoid"),
            isRoot: geteuid() == 0,
            clockSource: readProcFile("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            hasPressure: unsafe access("/proc/pressure/cpu", R_OK) == 0,
            hasSchedstat: Schedule.isCounted(in: readProcFile("/proc/self/schedstat")),
            countsDiskWaits: number("/proc/sys/kernel/task_delayacct").map { $0 != 0 },
            version: version
        )
    }

    private static func look(at path: String) throws(ReportError) -> DirectoryFacts {
        let reader = ReportReader(path: path)
        let catalog = try reader.catalog()
        let (runs, failures) = try catalog.allRuns()
        var facts = DirectoryFacts(path: path, unreadable: catalog.failures.count + failures.count, runs: runs.count)
        facts.allReports = catalog.stalls.count
        facts.stale = catalog.processes.count { $0.status(by: reader.liveness) == .dead }
        facts.signalBlocked = catalog.processes.filter { $0.status(by: reader.liveness) == .alive }
            .map(\.record.writer.process.pid).filter(blocksSignal)
        for run in runs { facts.add(run) }
        for id in catalog.stalls.suffix(sample) {
            do throws(ReportError) {
                facts.add(try catalog.report(id))
            } catch {
                // Otherwise it was deleted meanwhile to make room for a newer one.
                if error.code != .missingFile { facts.unreadable += 1 }
            }
        }
        facts.lookAtFile(path)
        return facts
    }

    /// Whether the main thread blocks SIGPROF (proc(5), `SigBlk`): the monitor's signal would never arrive.
    private static func blocksSignal(_ pid: Int32) -> Bool {
        // The list of the process's groups before that line can be hundreds of kilobytes long.
        guard let status = readFile("/proc/\(pid)/status", limit: 4 << 20) else { return false }
        for line in status.split(separator: "\n") where line.hasPrefix("SigBlk:") {
            let mask = UInt64(line.dropFirst(7).drop { $0 == "\t" || $0 == " " }, radix: 16) ?? 0
            return mask & (1 << UInt64(SIGPROF - 1)) != 0
        }
        return false
    }

    private static func number(_ path: String) -> Int? { readProcFile(path).flatMap { Int($0) } }
}

extension DoctorFacts.DirectoryFacts {
    fileprivate mutating func add(_ run: RunRecord) {
        versions.insert(run.monitorVersion)
        lostWrites = lostWrites.addingSaturated(max(0, run.lostWrites))
        if let reason = run.disarmed, disarmed.count < 8 { disarmed.append(reason) }
    }

    /// Adds a report that is later than those before it.
    fileprivate mutating func add(_ report: StallReport) {
        reports += 1
        if report.stacks.first?.frames.isEmpty ?? true {
            withoutStack += 1
            latestWithoutStack = report.id
        }
        if report.missingNames != nil { withoutNames += 1 }
        if let culprit = report.culprit, culprit.line == nil, !report.culpritIsGenerated { withoutLines += 1 }
    }

    fileprivate mutating func lookAtFile(_ path: String) {
        var status = stat()
        if unsafe stat(path, &status) == 0 {
            mode = status.st_mode & 0o7777
            isOurs = status.st_uid == geteuid()
        }
        var disk = statvfs()
        if unsafe statvfs(path, &disk) == 0 {
            freeBytes = UInt64(disk.f_bavail).multipliedSaturated(by: UInt64(disk.f_frsize))
            // Some file systems do not count inodes.
            freeInodes = disk.f_files > 0 ? UInt64(disk.f_favail) : nil
        }
    }
}

extension StallReport {
    /// Whether the culprit was generated at run time, as scripts' functions are: it is in no module, and no build gives it lines.
    fileprivate var culpritIsGenerated: Bool { culpritFrame.map { $0.module == nil } ?? false }
}
