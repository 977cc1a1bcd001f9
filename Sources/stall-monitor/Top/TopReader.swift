import Dispatch
import Glibc
import StallGate
import StallReading
import StallReports
import Synchronization

/// Reads what `top` shows on a thread of its own, so that keys and signals never wait for a disk. One refresh at a time.
final class TopReader: Sendable {
    /// What to read.
    struct Request {
        var paths: [String]
        var selection: StallSelection
        var view: TopState.View
        var order: FaultOrder
        var stallOrder: ListOrder
        var page: TopState.Row?
        var style: PageStyle
    }

    private struct State {
        var faults: [Fault]?
        var order: FaultOrder?
        /// What could not be read for them.
        var surveyFailures: [ReportError] = []
        /// When faults may be summed again. That reads every report, so a slow survey is not soon repeated.
        var nextSurvey = ContinuousClock.now
        /// The latest stalls, oldest first, what could not be read, and when they may be searched again.
        var stalls: (found: [StallOutline], failures: [ReportError], next: ContinuousClock.Instant)?
        /// Aliases of faults, and when they may be searched again. That, too, reads every report. The selection is the same for all of a run.
        var names: (found: FaultNames?, next: ContinuousClock.Instant)?
        var answer: Result<TopContent, any Error>?
    }

    /// Readable when the answer is ready.
    let descriptor: Int32
    private let writeEnd: Int32
    private let queue = DispatchQueue(label: "stall-monitor.top")
    private let state = Mutex(State())

    /// The largest number of stalls to show, and of reports to look at for them.
    private static let (mostStalls, reach) = (200, 10_000)
    /// A survey may take at most this fraction of the time: one part in 10.
    private static let surveyShare = 10

    init() throws(CommandFailure) {
        do throws(ReportError) {
            (descriptor, writeEnd) = try connectedEnds()
        } catch {
            throw CommandFailure(error)
        }
    }

    deinit {
        close(descriptor)
        close(writeEnd)
    }

    /// Starts a refresh. Take its answer before starting the next one.
    func look(_ request: Request) {
        queue.async { [self] in
            let answer = Result { try content(request) }
            state.withLock { $0.answer = answer }
            var byte: UInt8 = 1
            _ = unsafe write(writeEnd, &byte, 1)
        }
    }

    /// The refresh's answer. Nil while it is running.
    func take() throws -> TopContent? {
        var byte: UInt8 = 0
        _ = unsafe read(descriptor, &byte, 1)
        let answer = state.withLock { state in
            defer { state.answer = nil }
            return state.answer
        }
        return try answer?.get()
    }

    private func content(_ request: Request) throws -> TopContent {
        let sources = ReportSources(request.paths)
        var (content, failures) = (TopContent(), [ReportError]())
        content.snapshot = try sources.snapshot(
            of: request.selection,
            names: { self.aliases(in: $0, for: request.selection) },
            &failures
        )
        switch request.view {
        case .live: break
        case .faults: content.faults = try faults(sources, request, &failures)
        case .stalls: content.stalls = request.stallOrder.sorted(try stalls(sources, request, &failures)).reversed()
        }
        if let row = request.page {
            content.pageOf = TopContent.Page(row: row, showsFlame: request.style.showsFlame)
            content.page = try TopPage(row: row, content: content, request: request, sources: sources).lines()
        }
        // The tables read the same directories.
        var told: Set<ReportError> = []
        content.notes = failures.filter { told.insert($0).inserted }.map { CommandFailure($0).message }
        return content
    }

    /// The latest stalls, oldest first.
    private func stalls(
        _ sources: ReportSources,
        _ request: Request,
        _ failures: inout [ReportError]
    ) throws -> [StallOutline] {
        let start = ContinuousClock.now
        if let known = state.withLock({ $0.stalls }), known.next > start {
            failures += known.failures
            return known.found
        }
        let catalogs = try sources.catalogs()
        let names = aliases(in: catalogs, for: request.selection)
        var (found, unread): ([StallOutline], [ReportError]) = ([], catalogs.failures)
        for id in catalogs.stalls.suffix(Self.reach).reversed() where found.count < Self.mostStalls {
            do throws(ReportError) {
                let stall = try catalogs.outline(id)
                if request.selection.includes(stall, names: names) { found.append(stall) }
            } catch {
                // The report was deleted meanwhile to make room for a newer one.
                if error.code != .missingFile { unread.append(error) }
            }
        }
        found.reverse()
        failures += unread
        let end = ContinuousClock.now
        state.withLock { $0.stalls = (found, unread, end + (end - start) * Self.surveyShare) }
        return found
    }

    private func aliases(in catalogs: Catalogs, for selection: StallSelection) -> FaultNames? {
        guard !selection.fingerprints.isEmpty else { return nil }
        let start = ContinuousClock.now
        if let known = state.withLock({ $0.names }), known.next > start { return known.found }
        let found = catalogs.faultNames(for: selection)
        let end = ContinuousClock.now
        state.withLock { $0.names = (found, end + (end - start) * Self.surveyShare) }
        return found
    }

    private func faults(
        _ sources: ReportSources,
        _ request: Request,
        _ failures: inout [ReportError]
    ) throws -> [Fault] {
        let (known, unread) = state.withLock { state in
            let isFresh = state.order == request.order && state.nextSurvey > .now
            return (isFresh ? state.faults : nil, state.surveyFailures)
        }
        if let known {
            failures += unread
            return known
        }
        let start = ContinuousClock.now
        let survey = try FaultSurvey(sources.catalogs(), request.selection)
        failures += survey.failures
        let faults = survey.faults(by: request.order)
        let end = ContinuousClock.now
        state.withLock {
            ($0.faults, $0.order, $0.surveyFailures) = (faults, request.order, survey.failures)
            $0.nextSurvey = end + max(.seconds(1), (end - start) * Self.surveyShare)
        }
        return faults
    }
}

/// The page that `top` opens for a row.
struct TopPage {
    let row: TopState.Row
    let content: TopContent
    let request: TopReader.Request
    let sources: ReportSources

    func lines() throws -> [StyledText] {
        switch row {
        case .process(let run): process(run)
        case .stall(let id): try stall(id)
        case .fault(let fingerprint): try fault(fingerprint)
        }
    }

    private func stall(_ id: ULID) throws -> [StyledText] {
        let catalogs = try sources.catalogs()
        do throws(ReportError) {
            let report = try catalogs.report(id)
            let style = style(pointingTo: "ID")
            var brief = StallBrief(report: report, repeats: catalogs.repeats(of: report), style: style)
            brief.source = SourceLines.around(report.culprit, writtenAfter: report.startedAt)
            return brief.lines
        } catch {
            return ["The stall's report cannot be read, or is not written yet: \(error.description)"]
        }
    }

    private func fault(_ fingerprint: Fingerprint) throws -> [StyledText] {
        var chosen = request.selection
        chosen.fingerprints = FingerprintPrefix(fingerprint.rawValue).map { [$0] } ?? []
        let catalogs = try sources.catalogs()
        var evidence = FaultEvidence()
        let survey = try FaultSurvey(catalogs, chosen, names: catalogs.faultNames(for: chosen)) { evidence.add($0) }
        guard let fault = survey.faults(by: request.order).first else { return ["The fault has no stalls any more."] }
        evidence.read { try? catalogs.report($0) }
        let ids = ShortIDs(catalogs.stalls, elides: true)
        var page = FaultPage(fault: fault, evidence: evidence, ids: ids, style: style(pointingTo: "FINGERPRINT"))
        page.source = SourceLines.around(evidence.latest?.culprit, writtenAfter: evidence.latest?.startedAt)
        return page.lines
    }

    /// - Parameter name: What 'show' takes for this page.
    private func style(pointingTo name: String) -> PageStyle {
        var style = request.style
        style.fullHint = "'stall-monitor show \(name) --full'"
        return style
    }

    /// A process's live record and its ongoing stalls.
    private func process(_ run: ULID) -> [StyledText] {
        guard let row = content.snapshot?.processes.first(where: { $0.record.run == run }) else {
            return ["The process has gone, and has left nothing."]
        }
        let (writer, status) = (row.record.writer, row.record.status)
        let service =
            row.programs ?? writer.service.map { [$0.name, $0.version].compactMap(\.self).joined(separator: " ") }
        var rows: [(String, StyledText)] = [
            ("Process", "\(writer.process.pid)  \(writer.process.executable ?? "", .dim)"),
            ("Service", "\(service ?? "not named")"), ("Host", "\(writer.host.name)"), ("Alive", row.styledLife),
            ("Watched", "\(quantity(status.watched, "loop")), by version \(writer.monitorVersion)"),
            ("Since", "\(writer.startedAt.toSeconds)  \(writer.startedAt.ago(.now()), .dim)"),
            ("Changed", "\(status.updatedAt.toSeconds)  \("(at rest a monitor notes nothing)", .dim)"),
            ("Run", "\(run)"),
        ]
        rows.insert(contentsOf: row.targetFacts, at: 1)
        if let end = row.end { rows.append(("End", "\(end.summary)")) }
        if status.waitingReports > 0 {
            let waiting = quantity(status.waitingReports, "report")
            rows.append(("Writing", StyledText("\(waiting) not yet on the disk", .red)))
        }
        let facts = rows.map { "\(StyledText($0, .dim).padded(to: 10))\($1)" as StyledText }
        let stalls = row.ongoing.map { stall in
            "  \(stall.live.watched.label)  \(DurationText(nanoseconds: stall.live.durationNs).short)  \(stall.culprit ?? "")"
                as StyledText
        }
        return (facts + (stalls.isEmpty ? [] : ["", "\("Ongoing stalls", .bold)"] + stalls)).flatMap {
            $0.wrapped(to: request.style.width, hanging: 10)
        }
    }
}
