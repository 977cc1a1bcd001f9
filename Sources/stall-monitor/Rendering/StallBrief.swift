import Glibc
import StallReading
import StallReports

/// How a page is shown.
struct PageStyle {
    var showsAllFrames = false
    /// Show the stacks as a flame graph.
    var showsFlame = false
    var hasColours = false
    /// What shows all frames, for the lines that stand for some of them.
    var fullHint = "--full"
    /// The terminal's width. Nil: unlimited.
    var width: Int?
}

/// A stall's page for the operator on call: what, where, why, what to do, where the time went. `--full` shows the rest.
struct StallBrief {
    let report: StallReport
    /// Later stalls of the same fault that were only counted.
    var repeats: StallReport.Repeats?
    var now: Timestamp = .now()
    /// Lines of the culprit's source file, if it is on this machine.
    var source: [StyledText] = []
    var style = PageStyle()

    var lines: [StyledText] {
        var lines = ([headline, ""] + rows.flatMap(row) + [""]).wrapped(to: style.width, hanging: 10)
        var stacks = stackLines
        // Tables and flame graphs end with an empty line.
        if let last = stacks.last, !last.plain.isEmpty { stacks.append("") }
        lines += stacks.wrapped(to: style.width, hanging: 12)
        lines += context.flatMap(row).wrapped(to: style.width, hanging: 10)
        return lines
    }

    /// `612ms warning stall of main in shop 1.2: waiting, recovered 3d ago`
    private var headline: StyledText {
        let length = DurationText(nanoseconds: report.durationNs).short
        let least = report.state == .recovered ? "" : "at least "
        let service =
            report.service.map { " in \([$0.name, $0.version].compactMap { $0 }.joined(separator: " "))" } ?? ""
        let moment = report.state == .ongoing ? report.startedAt : report.lastKnownMoment
        let state: StyledText = report.state == .ongoing ? "\(report.styledState) since" : report.styledState
        return """
            \(StyledText("\(least)\(length)", .bold)) \(report.severity.styled) stall of \(StyledText(report.watched.label, .bold, limit: 80))\
            \(StyledText(service, limit: 120)): \(report.cause.verdict.styled), \(state) \(moment.ago(now))
            """
    }

    private var facts: StallFacts { StallFacts(report: report) }

    private var rows: [(String, StyledText)] {
        let (summary, advice) = (report.cause.summary, Advice.of(report))
        let rows: [(String, StyledText?)] = [
            ("", report.missingNames.map { "\($0)" }), ("Why", summary.isEmpty ? nil : StyledText(summary, .bold)),
            ("", figures), ("", excluded),
            ("", facts.waitedOn.map { "waited on \($0)" }), ("Hurt", report.victimText.map { "\($0)" }),
            ("End", report.processEnd.map { "\($0.cause): \($0.summary)" }),
            ("Likely", advice.map { "\($0.likely)" }), ("To do", advice.map { "\($0.remedy)" }),
        ]
        return [("Where", location)] + source.map { ("", $0) } + rows.known
    }

    private func row(_ name: String, _ value: StyledText) -> [StyledText] {
        ["\(StyledText(name, .dim).padded(to: 8))\(value)"]
    }

    private var location: StyledText {
        let place = report.culprit?.place.map { "  \($0)" } ?? ""
        let module = report.culprit?.module.map { "  (\($0))" } ?? ""
        return "\(report.culpritText, .bold)\(place)\(module, .dim)"
    }

    /// `CPU 0s, waiting for a CPU 81µs, otherwise waiting 250ms, in a window of 250ms; 4 major faults`
    private var figures: StyledText? {
        guard let evidence = report.cause.evidence else { return nil }
        let times = [
            ("CPU", evidence.cpuNs), ("waiting for a CPU", evidence.runDelayNs),
            ("otherwise waiting", evidence.waitedNs), ("waiting for disks", evidence.blockIONs),
        ]
        .compactMap { name, time in time.map { "\(name) \(DurationText(nanoseconds: $0).short)" } }
        var parts: [String] = []
        if !times.isEmpty {
            let window = evidence.windowNs.map { ", in a window of \(DurationText(nanoseconds: $0).short)" } ?? ""
            parts.append(times.joined(separator: ", ") + window)
        }
        if let faults = evidence.majorFaults, faults > 0 { parts.append(quantity(faults, "major fault")) }
        if report.cause.verdict == .starved, let found = facts.processors {
            parts.append(found.plain)
        }
        return parts.isEmpty ? nil : "\(parts.joined(separator: "; "))"
    }

    /// Time that would seem to contradict the duration, as the window of the figures contains it. Nil if it is less than a tenth of it.
    private var excluded: StyledText? {
        guard let time = report.excludedNs, time > 0, time >= report.durationNs / 10 else { return nil }
        return """
            \(DurationText(nanoseconds: time).short) more do not count: the process was stopped, its slowness was expected, or the monitor \
            itself had no CPU
            """
    }

    /// Whether the details follow. They have each stack, so that only a tree or a flame graph of them is of use here.
    private var isPart: Bool { style.showsAllFrames }

    /// A single stack as a list, several stacks as one tree; then the stack of the lock's owner.
    private var stackLines: [StyledText] {
        if let pool = report.pool {
            return isPart ? [] : PoolTable(report: report, pool: pool, width: style.width).lines + owners
        }
        let stalled = report.stacks.filter { $0.role == .stalled }
        var tree = StackTree()
        tree.add(report)
        if style.showsFlame {
            let title = "thread \(report.thread.numberAndName)"
            return FlameChart(tree: tree, title: title, style: style).lines + [""] + owners
        }
        guard stalled.count > 1 else { return isPart ? [] : stalled.flatMap(listing) + owners }
        let samples = stalled.map { Int64($0.count) }.saturatingSum()
        let head =
            "\("Stacks", .bold) of thread \(report.thread.numberAndName), \(samples) samples, outermost call first"
            as StyledText
        return [head] + StackTreeListing(tree: tree, style: style).lines + [""] + owners
    }

    private var owners: [StyledText] {
        if isPart { return [] }
        var lines: [StyledText] = []
        if let lock = report.cause.lock.map({ StyledText($0.text) }) { lines.append("\("Lock", .bold)  \(lock)") }
        if let circle = facts.circle { lines.append("\("Circle", .bold)  \(circle)") }
        return lines + report.stacks.filter { $0.role == .lockOwner }.flatMap(listing)
    }

    private func listing(_ stack: StallReport.Stack) -> [StyledText] {
        StackListing(
            stack: stack,
            modules: report.modules,
            isOfPool: report.pool != nil,
            fullHint: style.fullHint
        ).lines
    }

    private var context: [(String, StyledText)] {
        let executable = report.process.executable.map { " \($0)" } ?? ""
        let process: StyledText =
            "\(report.process.pid)\(executable) on \(report.host.name), thread \(report.thread.numberAndName)"
        let hint: StyledText = isPart ? "" : "  \("\(style.fullHint) shows all of it", .dim)"
        let rows: [(String, StyledText?)] = [
            ("When", "\(report.startedAt.toMilliseconds)"), ("Process", process), ("Work", facts.labels),
            ("Data", facts.metadata), ("Trace", facts.trace), ("Fault", "\(fault)"), ("Report", "\(report.id)\(hint)"),
        ]
        return rows.known
    }

    private var fault: String {
        let provisional = report.isProvisional == true ? ", provisional" : ""
        let since = repeats.map { "; after it: \($0.whole)" } ?? ""
        return "\(report.fingerprint)\(provisional)\(report.countedBefore)\(since)"
    }
}

extension StallReport.Evidence {
    /// The rest of the window, in which the thread neither ran nor was ready to run.
    fileprivate var waitedNs: Int64? {
        guard let windowNs, let cpuNs, let runDelayNs else { return nil }
        return max(0, windowNs.subtractingSaturated(cpuNs).subtractingSaturated(runDelayNs))
    }
}

/// The text of a source line, if the file named in a report is on this machine.
///
/// A report may name any file, so only regular files with a source file's extension are opened, with the user's permissions.
enum SourceLines {
    private static let endings: Set<Substring> = [
        "swift", "c", "h", "m", "mm", "cc", "cpp", "cxx", "hpp", "rs", "go", "py", "js", "ts", "java", "rb", "php",
    ]
    /// Larger files are not source code.
    private static let limit = 4 << 20

    /// The marked line with one line before and after it. Empty if the file cannot be read.
    static func around(_ culprit: StallReport.Culprit?, writtenAfter moment: Timestamp? = nil) -> [StyledText] {
        guard let path = culprit?.file, let line = culprit?.line, line > 0,
            let ending = path.split(separator: ".").last, endings.contains(ending),
            let (text, changed) = read(path)
        else { return [] }
        // With Windows' line ends, both characters are one to Swift.
        let lines = text.split(omittingEmptySubsequences: false) { $0 == "\n" || $0 == "\r\n" }
        guard lines.indices.contains(line - 1) else { return [] }
        let shown = max(0, line - 2)...min(lines.count - 1, line)
        let width = String(shown.upperBound + 1).count
        let code = shown.map { index -> StyledText in
            let number = String(index + 1)
            let room = String(repeating: " ", count: width - number.count)
            let source = String(lines[index]).replacing("\t", with: "    ")
            return index == line - 1
                ? "\("▶ \(room)\(number)", .bold)  \(StyledText(source, .bold, limit: 200))"
                : "\("  \(room)\(number)  ", .dim)\(StyledText(source, .dim, limit: 200))"
        }
        let isNewer = moment.map { changed > $0 } ?? false
        return code + (isNewer ? ["\("the file has changed since the stall: the line may be another", .yellow)"] : [])
    }

    private static func read(_ path: String) -> (text: String, changed: Timestamp)? {
        var raw = stat()
        // C ends a path at a zero byte. And opening a device can have side effects, so the file is checked before.
        guard !path.utf8.contains(0), unsafe stat(path, &raw) == 0, raw.st_mode & S_IFMT == S_IFREG else {
            return nil
        }
        let descriptor = unsafe open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        let file = OpenFile(owning: descriptor, path: path)
        guard let status = try? file.status(), status.isRegular, let bytes = try? file.readAll(limit: limit) else {
            return nil
        }
        return (String(decoding: bytes, as: UTF8.self), status.modified)
    }
}
