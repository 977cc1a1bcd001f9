import Foundation
import StallExport
import StallGate
import StallReading
import StallReports

/// One input: some reports and run records that refer to each other, and a look at living processes, through the
/// readers.
///
/// Each report is drawn by one of the readers that draw reports, and each input goes through some of the others: in the same time all of them get
/// as many different documents. A trial that uses every reader has short documents, each of which goes through all of them.
struct Trial {
    let samplers: Samplers
    private let seed: UInt64
    /// Whether the documents are broken before they are read: see ``Mutator``.
    let breaks: Bool
    /// Whether all readers see each document.
    let usesEvery: Bool
    /// Whether reports and run records stay intact, for readers of other files made from them.
    private let sparesReports: Bool
    var dice: Dice
    /// By reader.
    var calls: [String: Int] = [:]
    var problems: [String] = []

    init(_ samplers: Samplers, seed: UInt64, breaks: Bool, usesEvery: Bool = false) {
        (self.samplers, self.seed, self.breaks, self.usesEvery) = (samplers, seed, breaks, usesEvery)
        var dice = Dice(seed: seed)
        let spares = dice.happens(1, in: 3)
        (sparesReports, self.dice) = (breaks && spares, dice)
    }

    mutating func run() {
        let reports = (0...dice.below(3)).compactMap { _ in report() }
        let runs = (0...dice.below(3)).compactMap { _ in runRecord() }
        if usesEvery { return useEvery(reports, runs) }
        for report in reports {
            switch dice.below(8) {
            case 0...2: show(report)
            case 3: showBriefly(report)
            case 4: amend(report)
            case 5: tail(report)
            default: code(report)
            }
        }
        switch sparesReports ? dice.pick([3, 8, 8]) : dice.below(9) {
        case 0: list(reports, runs)
        case 1: tail(reports, runs)
        case 2: judge(reports, runs)
        case 3: top()
        case 4: faults(reports, runs)
        case 5: compare(reports, runs)
        case 6: export(reports, runs, dice.pick(ExportFormat.allCases))
        case 7: watched(reports, runs)
        default: readGateFiles(reports, runs)
        }
        if seed.isMultiple(of: 200) { readDirectory(reports, runs) }
    }

    private mutating func useEvery(_ reports: [StallReport], _ runs: [RunRecord]) {
        for report in reports {
            show(report)
            showBriefly(report)
            amend(report)
            tail(report)
            code(report)
        }
        list(reports, runs)
        tail(reports, runs)
        judge(reports, runs, by: budget(), against: nil, GateOutput.allCases)
        for _ in reports { top() }
        faults(reports, runs)
        compare(reports, runs)
        watched(reports, runs)
        for format in ExportFormat.allCases { export(reports, runs, format) }
        readGateFiles(reports, runs)
        if seed.isMultiple(of: 200) { readDirectory(reports, runs) }
    }

    // MARK: Documents

    private mutating func report() -> StallReport? {
        let document = samplers.report.document(&dice, isShort: usesEvery)
        let bytes = sparesReports ? document : broken(document, "report")
        do {
            let report = try StallReport(json: bytes)
            calls["report", default: 0] += 1
            return report
        } catch {
            // Valid, but larger than the model's numbers.
            calls["refused", default: 0] += 1
            return nil
        }
    }

    private mutating func runDocument() -> [UInt8] {
        let document = samplers.run.document(&dice, isShort: usesEvery)
        return sparesReports ? document : broken(document, "run record")
    }

    /// - Parameter kind: for the count.
    mutating func broken(_ document: [UInt8], _ kind: String) -> [UInt8] {
        guard breaks else { return document }
        calls["broken \(kind)", default: 0] += 1
        return Mutator.broken(document, &dice)
    }

    private mutating func runRecord() -> RunRecord? {
        guard let run = try? RunRecord(json: runDocument()) else {
            calls["refused", default: 0] += 1
            return nil
        }
        calls["run record", default: 0] += 1
        return run
    }

    // MARK: Readers

    private mutating func show(_ report: StallReport) {
        let (repeats, showsAllFrames) = (dice.happens(1, in: 2) ? report.repeats : nil, dice.happens(1, in: 2))
        check("show", StallPage(report: report, repeats: repeats, showsAllFrames: showsAllFrames).lines)
    }

    private mutating func showBriefly(_ report: StallReport) {
        let repeats = dice.happens(1, in: 2) ? report.repeats : nil
        check("show", StallBrief(report: report, repeats: repeats, style: .init(width: 1 + dice.below(200))).lines)
    }

    /// Written, and read again.
    private mutating func code(_ report: StallReport) {
        do {
            let text = try JSONText.of(report)
            check("show json", text)
            if try StallReport(json: Array(text.utf8)) != report { problems.append("show json: another report") }
            let outline: StallOutline = try ReportJSON.decode(Array(text.utf8))
            var read = report
            // Stacks are not read if the culprit has a name.
            if report.culprit?.function ?? report.culprit?.symbol != nil, !read.stacks.isEmpty {
                read.stacks[0].error = nil
            }
            if outline != StallOutline(read) { problems.append("list: another outline") }
        } catch {
            problems.append("show json: \(error)")
        }
    }

    /// As `symbolicate` does when it finds a name and an inlined call for each frame.
    private mutating func amend(_ report: StallReport) {
        let amended = amendment(of: report).applied(to: report)
        check("symbolicate", StallPage(report: amended).lines)
    }

    private func amendment(of report: StallReport) -> ReportAmendment {
        let named = { (frames: [StallReport.Frame]) in
            frames.map { frame in
                var (named, inlined) = (frame, frame)
                (named.function, named.line) = ("named()", 7)
                inlined.kind = .inlined
                return ReportAmendment.Frame(inlined: [inlined], frame: named)
            }
        }
        return ReportAmendment(
            stacks: report.stacks.map { named($0.frames) },
            awaiting: report.stacks.map { named($0.async?.frames ?? []) },
            culprit: report.culprit
        )
    }

    private mutating func list(_ reports: [StallReport], _ runs: [RunRecord]) {
        var overview = ReportReader.Overview()
        (overview.stalls, overview.runs) = (reports.map(StallOutline.init), runs)
        for width in [nil, 1 + dice.below(200)] {
            let list = StallList(
                stalls: overview.stalls,
                ids: ShortIDs(overview.stalls.map(\.id)),
                faults: ShortFingerprints(reports.map(\.fingerprint)),
                repeats: overview.repeats,
                width: width
            )
            check("list", list.lines, width: width)
        }
        check("list", runs.flatMap { $0.repeated ?? [] }.map { StyledText($0.repeats.whole) })
    }

    private mutating func tail(_ report: StallReport) {
        for width in [nil, 8 + dice.below(200)] {
            check("tail", StallLine.lines(report, isFirst: dice.happens(1, in: 2), width: width), width: width)
        }
        check("tail", [StallLine.growth(of: report).truncated(to: dice.below(100))])
    }

    private mutating func tail(_ reports: [StallReport], _ runs: [RunRecord]) {
        var lines = RepeatLines()
        let culprits = Dictionary(reports.map { ($0.id, $0.culpritText) }) { first, _ in first }
        for run in runs + runs.reversed() { check("tail -f", lines.lines(run, culprits: culprits)) }
    }

    private mutating func judge(_ reports: [StallReport], _ runs: [RunRecord]) {
        let budget = budget()
        judge(reports, runs, by: budget, against: nil, [dice.pick(GateOutput.allCases)])
    }

    private mutating func budget() -> Budget {
        let allowed = ["v2:0000", "0000000000000000", "v999:0000"].compactMap(FingerprintPrefix.init)
        return Budget(
            maxStalls: dice.pick([nil, 0, 1, .max]),
            maxDurationNs: dice.pick([nil, 0, 1_000_000_000, .max]),
            allowed: Array(allowed.prefix(dice.below(4)))
        )
    }

    private mutating func top() {
        let document = broken(samplers.snapshot.document(&dice, isShort: usesEvery), "snapshot")
        guard let snapshot = try? JSONDecoder().decode(LiveSnapshot.self, from: Data(document)) else {
            calls["refused", default: 0] += 1
            return
        }
        for width in [nil, 1 + dice.below(200)] {
            // Its first line is cut when the screen is drawn.
            check("top", LiveTable(snapshot: snapshot, width: width).lines)
        }
    }

    // MARK: Files

    /// The same from files, with live records beside them.
    private mutating func readDirectory(_ reports: [StallReport], _ runs: [RunRecord]) {
        let path = "\(NSTemporaryDirectory())/reader-fuzz-\(getpid())"
        defer { try? FileManager.default.removeItem(atPath: path) }
        do {
            let directory = ReportDirectory(path: path)
            try directory.prepare()
            for report in reports { try directory.write(report) }
            for run in runs { try directory.write(run) }
            if dice.happens(1, in: 2), let first = reports.first {
                try Data(first.json().dropLast(dice.below(400))).write(
                    to: URL(filePath: "\(path)/\(ReportFileName(.stall, .make()))")
                )
            }
            let files = try liveRecords(in: path, reports, runs)
            if breaks { try breakFiles(in: path) }
            try read(path)
            _ = consume files
            try read(path)
            try directory.closeTerminated()
            for id in try ReportReader(path: path).catalog().stalls {
                _ = try? directory.amend(id) { amendment(of: $0) }
            }
            try read(path)
        } catch {
            problems.append("directory: \(error)")
        }
    }

    /// No process holds them after they are released.
    private mutating func liveRecords(
        in path: String,
        _ reports: [StallReport],
        _ runs: [RunRecord]
    ) throws -> [LiveFile] {
        var files: [LiveFile] = []
        let document = samplers.snapshot.document(&dice)
        guard let snapshot = try? JSONDecoder().decode(LiveSnapshot.self, from: Data(document)) else { return [] }
        for (index, row) in snapshot.processes.enumerated() {
            var record = row.record
            if dice.happens(2, in: 3) { record.writer.host = .current() }
            let run = index < runs.count ? runs[index].id : record.run
            // A schema allows host names that are too long for a record; its writer refuses them.
            let file: LiveFile
            do {
                file = try LiveFile(in: path, run, record)
            } catch let error as ReportError where error.code == .tooLarge {
                continue
            }
            for (place, stall) in zip(LiveRecordFile.places, record.stalls) {
                var stall = stall
                if dice.happens(1, in: 2), let report = reports.first { stall.report = report.id }
                try file.file.write(stall, to: place)
            }
            files.append(file)
        }
        return files
    }

    /// In every way that readers use.
    private mutating func read(_ path: String) throws {
        let reader = ReportReader(path: path)
        let (contents, overview, catalog) = (try reader.contents(), try reader.overview(), try reader.catalog())
        // Outlines are also read from incomplete reports.
        if !breaks, contents.reports.map(\.id) != overview.stalls.map(\.id) {
            problems.append("directory: other stalls in the list")
        }
        for id in catalog.stalls {
            guard let report = try? catalog.report(id) else { continue }
            check("directory", StallPage(report: report, repeats: catalog.repeats(of: report)).lines)
        }
        var failures: [ReportError] = []
        check("directory", LiveTable(snapshot: try LiveSnapshot(reader, failures: &failures), width: nil).lines)
        check("directory", Gate.judge(.success(contents), by: Budget()).text)
        var follower = try ReportFollower(path: path)
        while let event = try follower.next(timeout: .zero) {
            if case .report(let report) = event {
                check("directory", StallLine.lines(report, isFirst: true, width: nil))
            }
        }
    }

    // MARK: What must hold

    mutating func check(_ reader: String, _ lines: some Sequence<StyledText>, width: Int? = nil) {
        let isColoured = dice.happens(1, in: 4)
        for line in lines {
            if line.plain.utf8.contains(UInt8(ascii: "\n")) { problems.append("\(reader): a line feed in a line") }
            if let width, line.width > width { problems.append("\(reader): \(line.width) columns in \(width)") }
            check(reader, line.plain, isCounted: false)
            if isColoured { _ = line.coloured }
        }
        calls[reader, default: 0] += 1
    }

    /// Contains nothing that a terminal would obey.
    mutating func check(_ reader: String, _ text: String, isCounted: Bool = true) {
        if isCounted { calls[reader, default: 0] += 1 }
        if text.utf8.allSatisfy({ (0x20...0x7e).contains($0) || $0 == 0x0a }) { return }
        for scalar in text.unicodeScalars where !scalar.isASCII || !(0x20...0x7e).contains(scalar.value) {
            guard scalar != "\n", VisibleText.of(String(scalar)) != String(scalar), !scalar.properties.isGraphemeExtend
            else { continue }
            problems.append("\(reader): U+\(String(scalar.value, radix: 16)) in its output")
            return
        }
    }
}

/// A live record that exists as long as this.
final class LiveFile {
    let file: LiveRecordFile

    init(in path: String, _ run: ULID, _ record: LiveRecord) throws {
        file = try LiveRecordFile(in: path, run: run, writer: record.writer, status: record.status)
    }
}
