#if Command
    import StallReports

    /// Stalls as a table, the newest last.
    enum StallList {
        static func lines(_ reports: [StallReport], ids: ShortIDs, width: Int?) -> [StyledText] {
            var table = TextTable([
                .init(title: "ID"), .init(title: "STARTED"), .init(title: "STATE"), .init(title: "DURATION"),
                .init(title: "KIND"), .init(title: "VERDICT", minimum: 8), .init(title: "CULPRIT", minimum: 12),
                .init(title: "LABEL", minimum: 4),
            ])
            for report in reports {
                table.append([
                    StyledText(ids.short(report.id)),
                    StyledText(width == nil ? report.startedAt.toSeconds : report.startedAt.withoutYear),
                    report.styledState,
                    StyledText(report.durationText),
                    StyledText(report.kind.rawValue, limit: 40),
                    StyledText(report.cause.verdict.rawValue, limit: 40),
                    StyledText(report.culpritText, limit: 120),
                    StyledText(report.watched.label),
                ])
            }
            return table.lines(width: width)
        }
    }
#endif
