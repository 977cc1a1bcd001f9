import StallReports

/// A finding of `doctor`, with its fix.
struct DoctorFinding: Hashable, Encodable {
    enum Level: String, Encodable {
        case ok, note, problem
    }

    let level: Level
    /// The name of the check, stable for programs.
    let check: String
    let found: String
    /// Nil if nothing needs to be done.
    let fix: String?
    /// Nil for findings about the machine.
    var directory: String?

    static func ok(_ check: String, _ found: String) -> Self {
        Self(level: .ok, check: check, found: found, fix: nil)
    }

    static func note(_ check: String, _ found: String, fix: String) -> Self {
        Self(level: .note, check: check, found: found, fix: fix)
    }

    static func problem(_ check: String, _ found: String, fix: String) -> Self {
        Self(level: .problem, check: check, found: found, fix: fix)
    }
}

/// Derives findings from facts. Pure.
struct Doctor {
    let facts: DoctorFacts

    var machine: [DoctorFinding] { [ptrace, perf, clock, kernel] }

    /// Findings about the report directory.
    var reports: [DoctorFinding] {
        guard let directory = facts.directory else {
            return [
                .problem(
                    "directory",
                    facts.directoryError ?? "the report directory cannot be read",
                    fix: "Give the server's directory, as a user who may read it, or set STALL_MONITOR_DIRECTORY."
                )
            ]
        }
        return [
            permissions(directory), disk(directory), files(directory), runs(directory), records(directory),
            signal(directory), stacks(directory), symbols(directory), lines(directory), versions(directory),
        ]
    }

    private var ptrace: DoctorFinding {
        let limit = facts.ptraceScope.map { "kernel.yama.ptrace_scope is \($0)" } ?? "Yama sets no limit"
        let scope = facts.ptraceScope ?? 0
        if scope >= 3 { return limitedReach("\(limit): 'sample' and 'watch' reach no process, not even as root") }
        if facts.isRoot { return .ok("ptrace", "\(limit); run as root: 'sample' and 'watch' reach every process") }
        switch scope {
        case 1: return limitedReach("\(limit): 'sample' and 'watch' reach only their own children")
        case 2: return limitedReach("\(limit): 'sample' and 'watch' reach no process")
        default: return .ok("ptrace", "\(limit); 'sample' and 'watch' reach processes of the same user")
        }
    }

    private func limitedReach(_ found: String) -> DoctorFinding {
        .note(
            "ptrace",
            "\(found); a monitor inside a server is not affected",
            fix: (facts.ptraceScope ?? 0) >= 3
                ? "Set a lower kernel.yama.ptrace_scope in /etc/sysctl.d, and restart the machine: 3 cannot be changed before."
                : "sysctl -w kernel.yama.ptrace_scope=0, or run as root or with CAP_SYS_PTRACE."
        )
    }

    private var perf: DoctorFinding {
        let limit =
            facts.perfEventParanoid.map { "kernel.perf_event_paranoid is \($0)" } ?? "perf events are not available"
        guard let level = facts.perfEventParanoid, level <= 2 || facts.isRoot else {
            return .note(
                "perf",
                "\(limit): 'watch' has no breakpoints and finds fewer stalls; a monitor inside a server is not affected",
                fix: facts.perfEventParanoid == nil
                    ? "Use a kernel with CONFIG_PERF_EVENTS."
                    : "sysctl -w kernel.perf_event_paranoid=2, or run as root or with CAP_PERFMON."
            )
        }
        return .ok("perf", "\(limit): 'watch' can set breakpoints")
    }

    private var clock: DoctorFinding {
        let source = facts.clockSource ?? "unknown"
        guard ["hpet", "acpi_pm", "jiffies", "refined-jiffies"].contains(source) else {
            return .ok("clock", "clock source \(source)")
        }
        return .note(
            "clock",
            "clock source \(source): each reading of the clock is a system call",
            fix: "Choose tsc or kvm-clock (/sys/devices/system/clocksource/clocksource0/available_clocksource)."
        )
    }

    private var kernel: DoctorFinding {
        var missing: [String] = []
        if !facts.hasSchedstat {
            missing.append("schedstat (how long a thread ran, and waited for a CPU; 'watch' cannot judge without it)")
        }
        if !facts.hasPressure { missing.append("pressure (/proc/pressure; boot with psi=1)") }
        if facts.countsDiskWaits == false { missing.append("waits for disks (sysctl kernel.task_delayacct=1)") }
        guard !missing.isEmpty else {
            return .ok("kernel", "the kernel provides all figures that verdicts need")
        }
        return .note(
            "kernel",
            "not counted by this kernel: \(missing.joined(separator: ", "))",
            fix: "Verdicts work without it, with fewer figures; turn it on if that matters."
        )
    }
}

extension String {
    /// As one word of a shell's command.
    fileprivate var shellWord: String {
        let isPlain = utf8.allSatisfy { byte in
            UInt8(ascii: "a")...UInt8(ascii: "z") ~= byte | 0x20 || UInt8(ascii: "0")...UInt8(ascii: "9") ~= byte
                || "/._-+:=,@%".utf8.contains(byte)
        }
        return isPlain ? self : "'\(replacing("'", with: #"'\''"#))'"
    }
}

extension Doctor {
    private typealias Directory = DoctorFacts.DirectoryFacts

    private func permissions(_ directory: Directory) -> DoctorFinding {
        let mode = String(directory.mode, radix: 8)
        if directory.mode & 0o022 != 0, directory.mode & 0o1000 == 0 {
            return .problem(
                "mode",
                "others can write to the directory (mode \(mode)): reports could be forged or removed",
                fix: "chmod go-w \(directory.path.shellWord)"
            )
        }
        if directory.mode & 0o077 != 0 {
            return .note(
                "mode",
                "others can read the directory (mode \(mode)); reports contain paths, peers and function names",
                fix: "chmod 700 \(directory.path.shellWord), unless this is intended"
            )
        }
        return .ok("mode", "mode \(mode)\(directory.isOurs ? "" : ", of another user")")
    }

    private func disk(_ directory: Directory) -> DoctorFinding {
        let free = directory.freeBytes.map { "\($0 >> 20) MiB free" } ?? "free space unknown"
        let isFull =
            directory.freeBytes.map { $0 < 64 << 20 } ?? false || directory.freeInodes.map { $0 < 100 } ?? false
        guard !isFull, directory.lostWrites == 0 else {
            let reports = quantity(directory.lostWrites, "report")
            let lost = directory.lostWrites > 0 ? "; \(reports) could not be written" : ""
            let inodes = directory.freeInodes.map { ", \($0) inodes" } ?? ""
            return .problem(
                "disk",
                "\(free)\(inodes)\(lost)",
                fix: "Free space, lower the report limits, or choose a directory on another disk."
            )
        }
        return .ok("disk", free)
    }

    private func files(_ directory: Directory) -> DoctorFinding {
        guard directory.unreadable > 0 else {
            // Reading a million reports would take minutes.
            let isPart = directory.allReports > directory.reports
            let part = "the run records and the latest \(quantity(directory.reports, "report")) can be read"
            return .ok("files", isPart ? part : "every file can be read")
        }
        return .problem(
            "files",
            "\(quantity(directory.unreadable, "file")) cannot be read",
            fix: "Which, and why: stall-monitor list \(directory.path.shellWord)"
        )
    }

    private func runs(_ directory: Directory) -> DoctorFinding {
        if !directory.disarmed.isEmpty {
            return .problem(
                "monitor",
                "a monitor has switched itself off: \(VisibleText.of(directory.disarmed[0], limit: 300))",
                fix: "Remove the reason, and restart the server."
            )
        }
        guard directory.runs > 0 else {
            return .problem(
                "monitor",
                "no monitor has ever written here",
                fix: "Start the server with StallMonitor.start(), or set its report directory to this one."
            )
        }
        return .ok("monitor", "\(quantity(directory.runs, "run")) of a monitor")
    }

    private func records(_ directory: Directory) -> DoctorFinding {
        guard directory.stale > 0 else {
            return .ok("live_records", "no live record of a dead process")
        }
        return .note(
            "live_records",
            directory.stale == 1
                ? "1 live record belongs to a dead process"
                : "\(directory.stale) live records belong to dead processes",
            fix: "The next start of a monitor in the directory closes their reports and removes them."
        )
    }

    private func signal(_ directory: Directory) -> DoctorFinding {
        guard let pid = directory.signalBlocked.first else {
            return .ok("signal", "no watched process blocks SIGPROF in its main thread")
        }
        // Which signal its monitor uses is not recorded.
        return .note(
            "signal",
            "process \(pid) blocks SIGPROF in its main thread: a monitor that uses it, as by default, cannot take that thread's stack while "
                + "the thread runs",
            fix: "Unblock it (pthread_sigmask), or give the monitor another signal. If it has one, do nothing."
        )
    }

    private func stacks(_ directory: Directory) -> DoctorFinding {
        let example = directory.latestWithoutStack.map { "\($0)" } ?? "latest"
        return lacking(
            directory.withoutStack,
            of: directory.reports,
            "stacks",
            "stack",
            "Why: stall-monitor show \(example) \(directory.path.shellWord)"
        )
    }

    private func symbols(_ directory: Directory) -> DoctorFinding {
        lacking(
            directory.withoutNames,
            of: directory.reports,
            "symbols",
            "names of the server's own functions: culprits are guesses",
            "Keep the unstripped program, and run 'stall-monitor symbolicate DIR --symbols FILE'."
        )
    }

    private func lines(_ directory: Directory) -> DoctorFinding {
        lacking(
            directory.withoutLines,
            of: directory.reports,
            "debug_information",
            "source line",
            "Build with -g, also in release (swift build -c release -Xswiftc -g), or keep the debug file for 'symbolicate'."
        )
    }

    private func lacking(_ count: Int, of all: Int, _ check: String, _ what: String, _ fix: String) -> DoctorFinding {
        let name = check.replacing("_", with: " ")
        guard count > 0 else {
            let found =
                switch all {
                case 0: "no reports, so \(name) cannot be checked"
                case 1: "the only report does not lack \(name)"
                default: "none of the latest \(all) reports lacks \(name)"
                }
            return .ok(check, found)
        }
        let reports = all == 1 ? "the only report" : "\(count) of the latest \(all) reports"
        return .note(check, "\(reports) \(count == 1 ? "has" : "have") no \(what)", fix: fix)
    }

    private func versions(_ directory: Directory) -> DoctorFinding {
        let others = directory.versions.subtracting([facts.version]).sorted().prefix(4)
            .map { VisibleText.of($0, limit: 40) }
        guard !others.isEmpty else {
            return .ok("versions", "command\(directory.runs > 0 ? " and monitors" : ""): \(facts.version)")
        }
        return .note(
            "versions",
            "this command is \(facts.version), monitors here were \(others.joined(separator: ", "))",
            fix: "Reports of a later version may contain more than this command shows: use the same version."
        )
    }
}
