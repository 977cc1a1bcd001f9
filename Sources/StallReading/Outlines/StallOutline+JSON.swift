import StallReports

extension StallOutline: Decodable {
    /// Decodes the needed parts of a report's JSON. Other parts are not checked.
    public init(from decoder: any Decoder) throws {
        let report = try decoder.container(keyedBy: CodingKeys.self)
        guard ReportJSON.reads(try report.decode(String.self, forKey: .schema), as: StallReport.currentSchema) else {
            throw DecodingError.dataCorruptedError(forKey: .schema, in: report, debugDescription: "another schema")
        }
        let identity = try report.decodeIfPresent(ServiceIdentity.self, forKey: .service)
        let watched = try report.decode(Watched.self, forKey: .watched)
        let cause = try report.decode(Cause.self, forKey: .cause)
        let culprit = try report.decodeIfPresent(StallReport.Culprit.self, forKey: .culprit)
        // Most culprits have names. Then the stacks are not read.
        var (name, error) = (culprit?.function ?? culprit?.symbol, String?.none)
        if name == nil { (name, error) = try Self.unnamed(culprit, in: report) }
        let traits = OutlineTraits(
            kind: try report.decode(StallKind.self, forKey: .kind),
            state: try report.decode(StallState.self, forKey: .state),
            severity: try report.decode(Severity.self, forKey: .severity),
            type: watched.type,
            label: watched.label,
            verdict: cause.verdict,
            culprit: culprit,
            culpritName: name,
            stackError: error,
            fingerprint: try report.decode(Fingerprint.self, forKey: .fingerprint),
            aliases: try report.decodeIfPresent([Fingerprint].self, forKey: .aliases)
        )
        let origin = OutlineOrigin(
            run: try report.decodeIfPresent(ULID.self, forKey: .run),
            host: try report.decode(Host.self, forKey: .host).name,
            service: identity?.name,
            release: identity?.version
        )
        self.init(
            id: try report.decode(ULID.self, forKey: .id),
            startedAt: try report.decode(Timestamp.self, forKey: .startedAt),
            endedAt: try report.decodeIfPresent(Timestamp.self, forKey: .endedAt),
            durationNs: try report.decode(Int64.self, forKey: .durationNs),
            runDelayShare: cause.evidence?.runDelayShare,
            traits: Shared(traits),
            origin: Shared(origin),
            suppressed: try report.decode(Int.self, forKey: .suppressed),
            repeats: try report.decodeIfPresent(StallReport.Repeats.self, forKey: .repeats)
        )
    }

    /// What is shown instead of the culprit's name, and the first stack's error.
    private static func unnamed(
        _ culprit: StallReport.Culprit?,
        in report: KeyedDecodingContainer<CodingKeys>
    ) throws -> (name: String?, error: String?) {
        let stacks = try report.decode([Stack].self, forKey: .stacks)
        let name: String? = try culprit.flatMap { culprit in
            let stack = stacks.indices.contains(culprit.stack) ? stacks[culprit.stack] : nil
            let frames = (culprit.isAwaiting == true ? stack?.async?.frames : stack?.frames) ?? []
            guard frames.indices.contains(culprit.frame) else { return culprit.module }
            let frame = frames[culprit.frame]
            let modules = try report.decode([Module].self, forKey: .modules)
            return frame.placeName(
                in: frame.module.flatMap { modules.indices.contains($0) ? modules[$0].path : nil }
            )
        }
        return (name, stacks.first?.error)
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
    struct Evidence: Decodable {
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
