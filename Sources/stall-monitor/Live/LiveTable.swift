import StallReports

/// A snapshot as two tables: the processes, and the stalls under way.
struct LiveTable {
    let snapshot: LiveSnapshot
    let width: Int?

    var lines: [StyledText] {
        let living = snapshot.processes.count { $0.state != .dead }
        let stalls = snapshot.processes.filter { $0.state != .dead }.flatMap(\.stalls)
            .count { $0.live.state == .ongoing }
        let title: StyledText = """
            \(snapshot.at.toMilliseconds, .dim)  \(Self.count(living, "process"), .bold) watched, \
            \(Self.count(stalls, "stall"), .bold) under way
            """
        guard !snapshot.processes.isEmpty else {
            return [title, "", "No monitored process keeps a live record in this directory, or left one."]
        }
        let jobs = JobTable(pools: pools, width: width).lines
        return [title, ""] + processes + (snapshot.processes.allSatisfy(\.stalls.isEmpty) ? [] : [""] + stallLines)
            + (jobs.isEmpty ? [] : [""] + jobs)
    }

    private var pools: [JobTable.Pool] {
        snapshot.processes.filter { $0.state != .dead }.flatMap { row in
            (row.pools ?? []).map { JobTable.Pool(processID: row.record.writer.process.pid, watched: $0) }
        }
    }

    private static func count(_ number: Int, _ noun: String) -> String {
        "\(number) \(noun)\(number == 1 ? "" : noun.hasSuffix("s") ? "es" : "s")"
    }

    private var processes: [StyledText] {
        var table = TextTable([
            .init(title: "PID"), .init(title: "SERVICE", minimum: 8), .init(title: "STATE", minimum: 8),
            .init(title: "LOOPS"), .init(title: "STALLS"), .init(title: "LAST NOTED"),
        ])
        for row in snapshot.processes {
            let (writer, status) = (row.record.writer, row.record.status)
            let age = max(0, snapshot.at.nanoseconds(since: status.updatedAt))
            table.append([
                "\(writer.process.pid)",
                StyledText(writer.service?.name ?? "", limit: 80),
                row.styledState,
                "\(status.watched)",
                "\(row.stalls.count)\(status.unplaced > 0 ? "+" : "")",
                "\(DurationText(nanoseconds: age).short) ago",
            ])
        }
        return table.lines(width: width)
    }

    private var stallLines: [StyledText] {
        let ids = ShortIDs(snapshot.processes.flatMap(\.stalls).map(\.live.report))
        var table = TextTable([
            .init(title: "ID", rank: 5), .init(title: "PID", rank: 2), .init(title: "LABEL", minimum: 4, rank: 3),
            .init(title: "STATE", rank: 4), .init(title: "LASTS"), .init(title: "SEVERITY", rank: 1),
            .init(title: "VERDICT", minimum: 8, rank: 6), .init(title: "CULPRIT", minimum: 20),
        ])
        for row in snapshot.processes {
            for stall in row.stalls {
                table.append(cells(stall, row, ids))
            }
        }
        return table.lines(width: width)
    }

    private func cells(_ stall: LiveSnapshot.Stall, _ row: LiveSnapshot.Row, _ ids: ShortIDs) -> [StyledText] {
        let isOver = stall.live.state != .ongoing
        let state: StyledText =
            isOver
            ? "\("recovered", .green)" : row.state == .dead ? "\("terminated", .red)" : "\("ongoing", .yellow)"
        return [
            StyledText(ids.short(stall.live.report)),
            "\(row.record.writer.process.pid)",
            StyledText(stall.live.watched.label, .bold, limit: 80),
            state,
            StyledText(DurationText(nanoseconds: stall.live.durationNs).short + (isOver ? "" : "+")),
            stall.severity?.styled ?? "",
            stall.verdict?.styled ?? "",
            StyledText(stall.culprit ?? "", limit: 120),
        ]
    }
}

extension LiveSnapshot.Row {
    fileprivate var styledState: StyledText {
        switch state {
        case .stalled: StyledText("stalled", .yellow)
        case .watching: StyledText("watching", .green)
        case .unknown: StyledText("unknown")
        case .dead:
            StyledText((end?.cause.rawValue ?? "dead") + (end?.exitStatus.map { " \($0)" } ?? ""), .red, limit: 40)
        }
    }
}
