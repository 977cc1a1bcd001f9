import ArgumentParser
import StallReading
import StallReports

struct ListCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list",
        abstract: "Lists the stalls, the newest last unless sorted otherwise.",
        discussion: """
            EXAMPLES
              stall-monitor list
              stall-monitor list /var/lib/shop/stalls --since 1h
              stall-monitor list --since yesterday --service 'shop*' --verdict waiting
              stall-monitor list --sort duration --since 1h -n 10
              stall-monitor list --format json | jq '.[].cause.verdict'

            A plus after a duration means at least that long. ×37 since 12:00: 37 later stalls of the same fault were only \
            counted. JSON is one array of whole reports.

            Exit code 0: done. 1: the directory, or a file in it, cannot be read; the others are listed. 64: wrong usage.
            """
    )

    @OptionGroup var reports: ReportsArgument
    @OptionGroup(title: "Choosing") var selection: Selection

    @Option(
        help: ArgumentHelp(
            "Sort by start, duration, severity or label; the newest, longest or most severe last.",
            valueName: "order"
        )
    )
    var sort: ListOrder = .started

    @Option(
        name: .customShort("n", allowingJoined: true),
        parsing: .unconditional,
        help: ArgumentHelp("Show at most this many, those that are sorted last.", valueName: "number")
    )
    var number: Int?

    @OptionGroup var screen: ScreenOptions

    @Option(help: "Text for people, or JSON for programs.")
    var format: OutputFormat = .text

    func validate() throws {
        if let number, number < 0 { throw ValidationError("-n is a number from 0") }
    }

    func run() throws {
        let chosen = selection.stalls
        let sources = try reports.sources(covering: chosen)
        let overview = try sources.overview()
        let names = chosen.fingerprints.isEmpty ? nil : FaultNames(overview.stalls)
        var filter = StallFilter(chosen, names: names)
        let all = chosen.isEverything ? overview.stalls : overview.stalls.filter { filter.includes($0) }
        let shown = Array(sort.sorted(all).suffix(number ?? .max))
        var failures = overview.failures
        switch format {
        case .json: failures += try writeJSON(shown.map(\.id), from: sources)
        case .text:
            if !all.isEmpty {
                try write(shown, of: overview)
            } else if failures.isEmpty {
                Output.note(chosen.nothingFound(among: overview.stalls.count, overview.runs, names: names))
            } else {
                Output.note("no stalls in what can be read")
            }
            noteCountedOnly(overview, chosen, names, besides: all)
            noteLongJobs(overview, chosen)
            if let note = chosen.lostNote(overview.runs) { Output.note(note) }
        }
        try ReportSources.report(failures)
    }

    private func write(_ stalls: [StallOutline], of overview: ReportReader.Overview) throws {
        let terminal = screen.terminal()
        let list = StallList(
            stalls: stalls,
            ids: ShortIDs(overview.stalls.lazy.map(\.id), elides: terminal.width != nil),
            faults: ShortFingerprints(overview.stalls.oncePerTraits.lazy.map(\.fingerprint)),
            repeats: overview.repeats,
            width: terminal.width
        )
        try screen.write(list.lines, on: terminal)
    }

    /// Writes one array with one report at a time in memory. Unreadable reports are left out; the array is always valid.
    ///
    /// - Returns: what could not be read.
    private func writeJSON(_ ids: [ULID], from sources: ReportSources) throws -> [ReportError] {
        let catalog = try sources.catalogs()
        var failures: [ReportError] = []
        var separator = ""
        try Output.write("[")
        for id in ids {
            guard let report = catalog.report(id, &failures) else { continue }
            try Output.write(separator + JSONText.of(report))
            separator = ",\n"
        }
        try Output.write("]\n")
        return failures
    }

    /// Long jobs beside free workers are not stalls and are not in any report. The latest runs are noted: there may be a hundred.
    private func noteLongJobs(_ overview: ReportReader.Overview, _ chosen: StallSelection) {
        let runs = overview.runs.filter { chosen.includes($0) }
        let isOfSeveralHosts = Set(runs.lazy.map(\.host.name)).count > 1
        let pools = runs.reversed().flatMap { run in
            run.watched.filter { $0.type == .taskPool }.map {
                JobTable.Pool(processID: run.process.pid, watched: $0, host: isOfSeveralHosts ? run.host.name : nil)
            }
        }
        let notes = JobTable(pools: pools).notes
        let shown = notes.prefix(Self.mostLongJobs)
        if shown.count < notes.count { Output.note("task pools of earlier runs had long jobs, too") }
        for note in shown.reversed() { Output.note(note) }
    }

    private static let mostLongJobs = 3

    /// Notes counted stalls whose report is not in the list, so that they are not silently missing: with --since, it may be older.
    private func noteCountedOnly(
        _ overview: ReportReader.Overview,
        _ chosen: StallSelection,
        _ names: FaultNames?,
        besides listed: [StallOutline]
    ) {
        let faults = countedOnly(overview, chosen, names, besides: listed)
        let shown = faults.suffix(Self.mostCountedOnly)
        if shown.count < faults.count {
            Output.note("only counted: \(faults.count - shown.count) more; 'stall-monitor faults' includes them")
        }
        let reports = shown.isEmpty ? [] : overview.stalls.oncePerTraits
        for fault in shown {
            let report = reports.last { ([$0.fingerprint] + ($0.aliases ?? [])).contains(fault.fingerprint) }
            let culprit = report.map { " in \($0.culpritText)" } ?? ""
            let loop = fault.label.map { " on \($0)" } ?? ""
            Output.note("only counted: \(fault.fingerprint)\(culprit)\(loop) \(fault.repeats.whole)")
        }
    }

    /// The newest last, as in the list; a run has up to a hundred, the newest first, and a directory has a hundred runs.
    private func countedOnly(
        _ overview: ReportReader.Overview,
        _ chosen: StallSelection,
        _ names: FaultNames?,
        besides listed: [StallOutline]
    ) -> [RunRecord.Repeated] {
        var counted = Set(overview.runs.lazy.flatMap { $0.repeated ?? [] }.compactMap(\.repeats.report))
        counted.formUnion(listed.lazy.compactMap(\.repeats?.report))
        let ids = Set(listed.lazy.map(\.id).filter { counted.contains($0) })
        let traits = FaultTraits(overview.stalls, for: chosen)
        let runs = overview.runsWithCounted(by: chosen).compactMap {
            $0.chosen(by: chosen, names: names, traits: traits)
        }
        // With --since, also those that a listed report counted since one that is older than that.
        let earlier = chosen.since == nil ? [] : listed.compactMap { chosen.part(of: $0).countedBefore }
        return (earlier + runs.flatMap { ($0.repeated ?? []).reversed() }).filter { fault in
            fault.repeats.report.map(ids.contains) != true
        }
    }

    private static let mostCountedOnly = 20
}

extension ListOrder: ExpressibleByArgument {}
