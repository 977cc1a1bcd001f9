/// The data of a stall that lists show: its report without stacks, evidence, and other data that only its page shows. Uses a
/// fraction of the memory.
public struct StallOutline: Hashable, Sendable {
    /// The report's id.
    public var id: ULID
    /// How the loop stalled.
    public var kind: StallKind
    /// Whether the stall is ongoing, and how it ended.
    public var state: StallState
    /// The severity by the duration.
    public var severity: Severity
    /// When the stall began.
    public var startedAt: Timestamp
    /// When the stall ended. Nil: it is ongoing, or its end is unknown.
    public var endedAt: Timestamp?
    /// The duration, in nanoseconds. Not negative.
    public var durationNs: Int64
    /// The run of the monitor that reported it.
    public var run: ULID?
    /// The host's name.
    public var host: String
    /// The service's name. Nil if the report has none.
    public var service: String?
    /// The service's version. Nil if the report has none.
    public var release: String?
    /// The type of the watched loop.
    public var type: WatchedType
    /// The label of the watched loop.
    public var label: String
    /// Why it stalled.
    public var verdict: Verdict
    /// The function to blame. Nil if none is known.
    public var culprit: StallReport.Culprit?
    /// The culprit's name: ``StallReport/culpritName``.
    public var culpritName: String?
    /// Why the stalled thread's stack is missing or ends early.
    public var stackError: String?
    /// The fault.
    public var fingerprint: Fingerprint
    /// Fingerprints of the same fault that the report had before.
    public var aliases: [Fingerprint]?
    /// The number of similar stalls before it that were only counted.
    public var suppressed: Int
    /// These stalls, with their times. Nil if there are none.
    public var repeats: StallReport.Repeats?
    /// The share of the measured time in which the thread was runnable and got no processor, from 0 to 1. Nil: not measured.
    public var runDelayShare: Double?

    /// From a report in memory.
    public init(_ report: StallReport) {
        (id, kind, state, severity) = (report.id, report.kind, report.state, report.severity)
        (startedAt, endedAt, durationNs) = (report.startedAt, report.endedAt, report.durationNs)
        (run, type, label, verdict) = (report.run, report.watched.type, report.watched.label, report.cause.verdict)
        (host, service, release) = (report.host.name, report.service?.name, report.service?.version)
        (culprit, culpritName, stackError) = (report.culprit, report.culpritName, report.stacks.first?.error)
        (fingerprint, aliases) = (report.fingerprint, report.aliases)
        (suppressed, repeats) = (report.suppressed, report.repeats)
        runDelayShare = report.cause.evidence?.runDelayShare
    }
}

extension StallOutline {
    /// The function to inspect, or why there is none.
    public var culpritText: String {
        if let name = culpritName { return name }
        if let reason = stackError { return "no stack: \(reason)" }
        return "unknown"
    }

    /// Its end, or the time until which it is known to have lasted.
    public var lastKnownMoment: Timestamp { endedAt ?? startedAt.advanced(byNanoseconds: max(0, durationNs)) }
}

extension StallReport.Culprit {
    /// `Stalls.swift:17`, nil without a line.
    public var place: String? {
        guard let file, let line else { return nil }
        return "\(file.split(separator: "/").last.map(String.init) ?? file):\(line)"
    }
}

extension StallOutline {
    /// From a report's JSON, without parsing most of its stacks: many times as fast as reading the report itself.
    ///
    /// - Throws: The reason why it is not a report, as ``StallReport/init(json:)`` does.
    public init(checking bytes: [UInt8]) throws(ReportError) {
        try ReportJSON.checkShape(of: bytes)
        if let outline = StallOutline(json: bytes) {
            guard outline.durationNs >= 0 else { throw ReportError(.malformed, detail: "a duration is negative") }
            self = outline
        } else {
            self.init(try StallReport(json: bytes))
        }
    }

    /// From a report's JSON; nil if that does not have all the data of an outline.
    ///
    /// Reports in the monitor's own format are read without a parser. The largest parts are parsed only if the outline needs
    /// them: if the culprit has no name.
    init?(json bytes: [UInt8]) {
        let members = JSONMembers(bytes)
        if let members, let outline = try? StallOutline(members) {
            self = outline
            return
        }
        let brief = members?.json(without: ["modules", "stacks"]) ?? bytes
        guard let outline: StallOutline = (try? ReportJSON.decode(brief)) ?? (try? ReportJSON.decode(bytes)) else {
            return nil
        }
        self = outline
    }

    /// Throws for a report that is not in the monitor's format, or whose culprit has no name: a parser has to read it.
    private init(_ report: JSONMembers) throws {
        guard ReportJSON.reads(try required(report.text("schema")), as: StallReport.currentSchema) else {
            throw JSONMembers.Irregular()
        }
        id = try required(report.value("id") { ULID($0) })
        kind = StallKind(rawValue: try required(report.text("kind")))
        state = StallState(rawValue: try required(report.text("state")))
        severity = Severity(rawValue: try required(report.text("severity")))
        startedAt = try required(report.value("started_at") { Timestamp(rfc3339: $0) })
        endedAt = try report.value("ended_at") { Timestamp(rfc3339: $0) }
        durationNs = try required(report.number("duration_ns"))
        run = try report.value("run") { ULID($0) }
        host = try required(required(report.object("host")).text("name"))
        let identity = try report.object("service")
        service = try identity.map { try required($0.text("name")) }
        release = try identity?.text("version")
        let watched = try required(report.object("watched"))
        type = WatchedType(rawValue: try required(watched.text("type")))
        label = try required(watched.text("label"))
        let cause = try required(report.object("cause"))
        verdict = Verdict(rawValue: try required(cause.text("verdict")))
        runDelayShare = try cause.object("evidence").flatMap { evidence in
            try Evidence(runDelayNs: evidence.number("run_delay_ns"), windowNs: evidence.number("window_ns"))
                .runDelayShare
        }
        let culprit = try StallReport.Culprit(required(report.object("culprit")))
        (self.culprit, culpritName) = (culprit, try required(culprit.function ?? culprit.symbol))
        fingerprint = try required(report.value("fingerprint") { Fingerprint(rawValue: $0) })
        suppressed = Int(clamping: try required(report.number("suppressed")))
        aliases = try report.json("aliases").map { try ReportJSON.decode($0) }
        repeats = try report.json("repeats").map { try ReportJSON.decode($0) }
    }
}

extension StallReport.Culprit {
    fileprivate init(_ culprit: JSONMembers) throws {
        self.init(
            function: try culprit.text("function"),
            symbol: try culprit.text("symbol"),
            module: try culprit.text("module"),
            file: try culprit.text("file"),
            line: try culprit.number("line").map { Int(clamping: $0) },
            stack: Int(clamping: try required(culprit.number("stack"))),
            frame: Int(clamping: try required(culprit.number("frame"))),
            isAwaiting: try culprit.flag("awaiting")
        )
    }
}

extension StallOutline: Decodable {
    /// Reads the needed parts of a report's JSON: other parts are not checked.
    public init(from decoder: any Decoder) throws {
        let report = try decoder.container(keyedBy: CodingKeys.self)
        guard ReportJSON.reads(try report.decode(String.self, forKey: .schema), as: StallReport.currentSchema) else {
            throw DecodingError.dataCorruptedError(forKey: .schema, in: report, debugDescription: "another schema")
        }
        id = try report.decode(ULID.self, forKey: .id)
        kind = try report.decode(StallKind.self, forKey: .kind)
        state = try report.decode(StallState.self, forKey: .state)
        severity = try report.decode(Severity.self, forKey: .severity)
        startedAt = try report.decode(Timestamp.self, forKey: .startedAt)
        endedAt = try report.decodeIfPresent(Timestamp.self, forKey: .endedAt)
        durationNs = try report.decode(Int64.self, forKey: .durationNs)
        run = try report.decodeIfPresent(ULID.self, forKey: .run)
        host = try report.decode(Host.self, forKey: .host).name
        let identity = try report.decodeIfPresent(ServiceIdentity.self, forKey: .service)
        (service, release) = (identity?.name, identity?.version)
        let watched = try report.decode(Watched.self, forKey: .watched)
        (type, label) = (watched.type, watched.label)
        let cause = try report.decode(Cause.self, forKey: .cause)
        verdict = cause.verdict
        runDelayShare = cause.evidence?.runDelayShare
        culprit = try report.decodeIfPresent(StallReport.Culprit.self, forKey: .culprit)
        // Most have names; then the stacks are not read.
        culpritName = culprit?.function ?? culprit?.symbol
        if culpritName == nil {
            let stacks = try report.decode([Stack].self, forKey: .stacks)
            stackError = stacks.first?.error
            culpritName = try culprit.flatMap { culprit in
                let stack = stacks.indices.contains(culprit.stack) ? stacks[culprit.stack] : nil
                let frames = (culprit.isAwaiting == true ? stack?.async?.frames : stack?.frames) ?? []
                guard frames.indices.contains(culprit.frame) else { return culprit.module }
                let frame = frames[culprit.frame]
                let modules = try report.decode([Module].self, forKey: .modules)
                return frame.placeName(
                    in: frame.module.flatMap { modules.indices.contains($0) ? modules[$0].path : nil }
                )
            }
        }
        fingerprint = try report.decode(Fingerprint.self, forKey: .fingerprint)
        aliases = try report.decodeIfPresent([Fingerprint].self, forKey: .aliases)
        suppressed = try report.decode(Int.self, forKey: .suppressed)
        repeats = try report.decodeIfPresent(StallReport.Repeats.self, forKey: .repeats)
    }

    private enum CodingKeys: String, CodingKey {
        case schema, id, kind, state, severity, run, host, service, watched, cause, culprit, stacks, modules,
            fingerprint, aliases,
            suppressed, repeats
        case startedAt = "started_at"
        case endedAt = "ended_at"
        case durationNs = "duration_ns"
    }

    private struct Host: Decodable { let name: String }
    private struct Watched: Decodable {
        let type: WatchedType
        let label: String
    }
    private struct Cause: Decodable {
        let verdict: Verdict
        let evidence: Evidence?
    }
    private struct Evidence: Decodable {
        let runDelayNs: Int64?
        let windowNs: Int64?

        var runDelayShare: Double? { StallReport.Evidence(runDelayNs: runDelayNs, windowNs: windowNs).runDelayShare }

        private enum CodingKeys: String, CodingKey {
            case runDelayNs = "run_delay_ns"
            case windowNs = "window_ns"
        }
    }
    private struct Module: Decodable { let path: String }
    private struct Stack: Decodable {
        let error: String?
        let frames: [StallReport.Frame]
        let async: StallReport.AsyncCallers?
    }
}

extension FaultNames {
    /// - Parameter stalls: All stalls that may have been symbolicated.
    public init(_ stalls: some Sequence<StallOutline>) {
        self.init(pairs: stalls.lazy.map { ($0.fingerprint, $0.aliases ?? []) })
    }
}
