import StallReports

/// A line of `top`, and the row that it selects.
struct TopLine {
    let text: StyledText
    var row: TopState.Row?

    /// A table's header, then its lines with the row that each selects.
    static func of(_ lines: some Sequence<StyledText>, _ rows: [TopState.Row]) -> [TopLine] {
        zip(lines, [nil] + rows.map(Optional.some)).map { TopLine(text: $0, row: $1) }
    }
}

/// A snapshot as two tables: processes and ongoing stalls.
struct LiveTable {
    let snapshot: LiveSnapshot
    let width: Int?

    var lines: [StyledText] { title.wrapped(to: width, hanging: 2) + [""] + body.map(\.text) }

    var title: StyledText {
        let living = snapshot.processes.count { $0.state != .dead }
        let dead = snapshot.processes.count - living
        let stalls = snapshot.processes.filter { $0.state != .dead }.map(\.ongoing.count).reduce(0, +)
        let ended = dead > 0 ? ", \(dead) ended" : ""
        return """
            \(snapshot.at.toMilliseconds, .dim)  \(quantity(stalls, "ongoing stall"), .bold), \
            \(quantity(living, "process"), .bold) watched\(ended)
            """
    }

    /// The lines below the title.
    var body: [TopLine] {
        guard !snapshot.processes.isEmpty else {
            return StyledText("No monitored process keeps a live record in this directory, or left one.")
                .wrapped(to: width, hanging: 0).map { TopLine(text: $0) }
        }
        let jobs = JobTable(pools: pools, width: width).lines.map { TopLine(text: $0) }
        let blank = [TopLine(text: "")]
        return processes + (snapshot.processes.allSatisfy(\.stalls.isEmpty) ? [] : blank + stallLines)
            + (jobs.isEmpty ? [] : blank + jobs)
    }

    private var pools: [JobTable.Pool] {
        snapshot.processes.filter { $0.state != .dead }.flatMap { row in
            (row.pools ?? []).map { JobTable.Pool(processID: row.record.writer.process.pid, watched: $0) }
        }
    }

    private var processes: [TopLine] {
        var table = TextTable([
            .init(title: "PID"), .init(title: "SERVICE", minimum: 8, rank: 5), .init(title: "STATE", minimum: 8),
            .init(title: "ALIVE", rank: 6), .init(title: "LOOPS", rank: 2), .init(title: "STALLS", rank: 4),
            .init(title: "LAST CHANGE", rank: 3), .init(title: "HOST", minimum: 6, rank: 1),
        ])
        for row in snapshot.processes {
            let (writer, status) = (row.record.writer, row.record.status)
            table.append([
                "\(writer.process.pid)",
                StyledText(row.service ?? "", limit: 80),
                row.styledState,
                row.styledLife,
                "\(status.watched)",
                "\(row.ongoing.count)\(status.unplaced > 0 ? "+" : "")",
                StyledText(status.updatedAt.ago(snapshot.at)),
                StyledText(writer.host.name, limit: 80),
            ])
        }
        return TopLine.of(table.lines(width: width), snapshot.processes.map { .process(run: $0.record.run) })
    }

    private var stallLines: [TopLine] {
        let ids = ShortIDs(snapshot.processes.flatMap(\.stalls).map(\.live.report), elides: width != nil)
        var table = TextTable([
            .init(title: "ID", rank: 5), .init(title: "PID", rank: 2), .init(title: "LABEL", minimum: 4, rank: 3),
            .init(title: "STATE", rank: 4), .init(title: "LASTS"), .init(title: "SEVERITY", rank: 1),
            .init(title: "VERDICT", minimum: 9, rank: 6), .culprits(width),
        ])
        for row in snapshot.processes {
            for stall in row.stalls {
                table.append(cells(stall, row, ids))
            }
        }
        return TopLine.of(
            table.lines(width: width),
            snapshot.processes.flatMap(\.stalls).map { .stall($0.live.report) }
        )
    }

    private func cells(_ stall: LiveSnapshot.Stall, _ row: LiveSnapshot.Row, _ ids: ShortIDs) -> [StyledText] {
        let isOver = stall.live.state != .ongoing
        return [
            StyledText(ids.short(stall.live.report)),
            "\(stall.live.processID ?? row.record.writer.process.pid)",
            StyledText(stall.live.watched.label, .bold, limit: 80),
            stall.styledState(isOver, row.state),
            StyledText(DurationText(nanoseconds: stall.live.durationNs).short + (isOver ? "" : "+")),
            stall.severity?.styled ?? "",
            stall.verdict?.styled ?? "",
            StyledText(stall.culprit ?? "", limit: 120),
        ]
    }
}

extension LiveSnapshot.Stall {
    /// As the report's state is read. If only a watcher from outside has died, nothing is known about the process that it watched.
    fileprivate func styledState(_ isOver: Bool, _ process: LiveSnapshot.State) -> StyledText {
        if isOver { return StyledText("recovered", .green) }
        guard process == .dead else { return StyledText("ongoing", .yellow) }
        return live.processID == nil ? StyledText("terminated", .red) : StyledText("abandoned", .yellow)
    }
}

extension LiveSnapshot.Row {
    /// Stopped by a signal or a debugger; its monitor does not run.
    private var isStopped: Bool { kernelState == "T" || kernelState == "t" }

    fileprivate var styledState: StyledText {
        switch state {
        case .stalled, .watching: isStopped ? StyledText("stopped", .yellow) : styledWatch
        case .unknown: StyledText("unknown")
        case .dead:
            StyledText((end?.cause.rawValue ?? "dead") + (end?.exitStatus.map { " \($0)" } ?? ""), .red, limit: 40)
        }
    }

    private var styledWatch: StyledText {
        state == .stalled ? StyledText("stalled", .yellow) : StyledText("watching", .green)
    }

    /// Of a watcher from outside, the processes that it watches or has watched: the latest four, each with its last program.
    var targetFacts: [(String, StyledText)] {
        var seen: Set<Int32> = []
        let targets = (watcher?.targets ?? []).reversed().filter { seen.insert($0.pid).inserted }
        var facts = targets.prefix(4).map { ("", "\($0.pid)  \($0.executable ?? "", .dim)" as StyledText) }
        if targets.count > facts.count { facts.append(("", "… \(targets.count - facts.count) more")) }
        if !facts.isEmpty { facts[0].0 = "Watches" }
        return facts
    }

    /// Read from the kernel, not from the live record: the monitor of an idle process writes nothing.
    var styledLife: StyledText {
        switch kernelState {
        case _ where state == .dead: StyledText("no", .red)
        case "R": StyledText("running", .green)
        case "S", "I": StyledText("asleep", .green)
        case "D": StyledText("in disk wait", .yellow)
        case "T": StyledText("stopped", .yellow)
        case "t": StyledText("traced", .yellow)
        // Its lock is held, or its state cannot be read from here.
        default: state == .unknown ? StyledText("unknown") : StyledText("yes")
        }
    }
}
