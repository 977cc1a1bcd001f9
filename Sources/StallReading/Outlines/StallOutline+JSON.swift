public import StallReports

extension StallOutline {
    /// Creates an outline from a report's JSON without parsing most of its stacks, which is many times as fast as reading the
    /// report.
    ///
    /// - Throws: The reason why it is not a report, as `StallReport.init(json:)` does.
    public init(checking bytes: [UInt8]) throws(ReportError) {
        try ReportJSON.checkShape(of: bytes)
        if let outline = StallOutline(json: bytes) {
            guard outline.durationNs >= 0 else { throw ReportError(.malformed, detail: "a duration is negative") }
            self = outline
        } else {
            self.init(try StallReport(json: bytes))
        }
    }

    /// Creates an outline from a report's JSON; nil if that lacks data for an outline.
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

    /// Throws if the report is not in the monitor's format, or if its culprit has no name: a parser must read it then.
    private init(_ report: JSONMembers) throws {
        guard ReportJSON.reads(try required(report.text("schema")), as: StallReport.currentSchema) else {
            throw JSONMembers.Irregular()
        }
        let share = try required(report.object("cause")).object("evidence").flatMap { evidence in
            try Evidence(runDelayNs: evidence.number("run_delay_ns"), windowNs: evidence.number("window_ns"))
                .runDelayShare
        }
        self.init(
            id: try required(report.value("id") { ULID($0) }),
            startedAt: try required(report.value("started_at") { Timestamp(rfc3339: $0) }),
            endedAt: try report.value("ended_at") { Timestamp(rfc3339: $0) },
            durationNs: try required(report.number("duration_ns")),
            runDelayShare: share,
            traits: Shared(try OutlineTraits(report)),
            origin: Shared(try OutlineOrigin(report)),
            suppressed: Int(clamping: try required(report.number("suppressed"))),
            repeats: try report.json("repeats").map { try ReportJSON.decode($0) }
        )
    }
}

extension OutlineTraits {
    fileprivate init(_ report: JSONMembers) throws {
        let watched = try required(report.object("watched"))
        let culprit = try StallReport.Culprit(required(report.object("culprit")))
        self.init(
            kind: StallKind(rawValue: try required(report.text("kind"))),
            state: StallState(rawValue: try required(report.text("state"))),
            severity: Severity(rawValue: try required(report.text("severity"))),
            type: WatchedType(rawValue: try required(watched.text("type"))),
            label: try required(watched.text("label")),
            verdict: Verdict(rawValue: try required(required(report.object("cause")).text("verdict"))),
            culprit: culprit,
            culpritName: try required(culprit.function ?? culprit.symbol),
            stackError: nil,
            fingerprint: try required(report.value("fingerprint") { Fingerprint(rawValue: $0) }),
            aliases: try report.json("aliases").map { try ReportJSON.decode($0) }
        )
    }
}

extension OutlineOrigin {
    fileprivate init(_ report: JSONMembers) throws {
        let identity = try report.object("service")
        self.init(
            run: try report.value("run") { ULID($0) },
            host: try required(required(report.object("host")).text("name")),
            service: try identity.map { try required($0.text("name")) },
            release: try identity?.text("version")
        )
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

// MARK: - With a parser

extension StallOutline: Decodable {
    /// Decodes the needed parts of a report's JSON. Other parts are not checked.
    public init(from decoder: any Decoder) throws {
        let report = try decoder.container(keyedBy: CodingKeys.self)
        guard ReportJSON.reads(try report.decode(String.self, forKey: .schema), as: StallReport.currentSchema) else {
            throw DecodingError.dataCorruptedError(forKey: .schema, in: report, debugDescription: "another schema")
        }
        let cause = try report.decode(Cause.self, forKey: .cause)
        self.init(
            id: try report.decode(ULID.self, forKey: .id),
            startedAt: try report.decode(Timestamp.self, forKey: .startedAt),
            endedAt: try report.decodeIfPresent(Timestamp.self, forKey: .endedAt),
            durationNs: try report.decode(Int64.self, forKey: .durationNs),
            runDelayShare: cause.evidence?.runDelayShare,
            traits: Shared(try OutlineTraits(report, cause.verdict)),
            origin: Shared(try OutlineOrigin(report)),
            suppressed: try report.decode(Int.self, forKey: .suppressed),
            repeats: try report.decodeIfPresent(StallReport.Repeats.self, forKey: .repeats)
        )
    }

    fileprivate enum CodingKeys: String, CodingKey {
        case schema, id, kind, state, severity, run, host, service, watched, cause, culprit, stacks, modules,
            fingerprint, aliases,
            suppressed, repeats
        case startedAt = "started_at"
        case endedAt = "ended_at"
        case durationNs = "duration_ns"
    }

    fileprivate struct Host: Decodable { let name: String }
    fileprivate struct Watched: Decodable {
        let type: WatchedType
        let label: String
    }
    private struct Cause: Decodable {
        let verdict: Verdict
        let evidence: Evidence?
    }
    struct Evidence: Decodable {
        let runDelayNs: Int64?
        let windowNs: Int64?

        var runDelayShare: Double? { StallReport.Evidence(runDelayNs: runDelayNs, windowNs: windowNs).runDelayShare }

        private enum CodingKeys: String, CodingKey {
            case runDelayNs = "run_delay_ns"
            case windowNs = "window_ns"
        }
    }
    fileprivate struct Module: Decodable { let path: String }
    fileprivate struct Stack: Decodable {
        let error: String?
        let frames: [StallReport.Frame]
        let async: StallReport.AsyncCallers?
    }
}

extension OutlineTraits {
    fileprivate init(_ report: KeyedDecodingContainer<StallOutline.CodingKeys>, _ verdict: Verdict) throws {
        let watched = try report.decode(StallOutline.Watched.self, forKey: .watched)
        let culprit = try report.decodeIfPresent(StallReport.Culprit.self, forKey: .culprit)
        // Most culprits have names. Then the stacks are not read.
        var (name, error) = (culprit?.function ?? culprit?.symbol, String?.none)
        if name == nil { (name, error) = try Self.unnamed(culprit, in: report) }
        self.init(
            kind: try report.decode(StallKind.self, forKey: .kind),
            state: try report.decode(StallState.self, forKey: .state),
            severity: try report.decode(Severity.self, forKey: .severity),
            type: watched.type,
            label: watched.label,
            verdict: verdict,
            culprit: culprit,
            culpritName: name,
            stackError: error,
            fingerprint: try report.decode(Fingerprint.self, forKey: .fingerprint),
            aliases: try report.decodeIfPresent([Fingerprint].self, forKey: .aliases)
        )
    }

    /// What is shown instead of the culprit's name, and the first stack's error.
    private static func unnamed(
        _ culprit: StallReport.Culprit?,
        in report: KeyedDecodingContainer<StallOutline.CodingKeys>
    ) throws -> (name: String?, error: String?) {
        let stacks = try report.decode([StallOutline.Stack].self, forKey: .stacks)
        let name: String? = try culprit.flatMap { culprit in
            let stack = stacks.indices.contains(culprit.stack) ? stacks[culprit.stack] : nil
            let frames = (culprit.isAwaiting == true ? stack?.async?.frames : stack?.frames) ?? []
            guard frames.indices.contains(culprit.frame) else { return culprit.module }
            let frame = frames[culprit.frame]
            let modules = try report.decode([StallOutline.Module].self, forKey: .modules)
            return frame.placeName(
                in: frame.module.flatMap { modules.indices.contains($0) ? modules[$0].path : nil }
            )
        }
        return (name, stacks.first?.error)
    }
}

extension OutlineOrigin {
    fileprivate init(_ report: KeyedDecodingContainer<StallOutline.CodingKeys>) throws {
        let service = try report.decodeIfPresent(ServiceIdentity.self, forKey: .service)
        self.init(
            run: try report.decodeIfPresent(ULID.self, forKey: .run),
            host: try report.decode(StallOutline.Host.self, forKey: .host).name,
            service: service?.name,
            release: service?.version
        )
    }
}
