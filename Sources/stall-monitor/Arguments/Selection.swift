import ArgumentParser
import StallGate
import StallReports

/// The options that choose among stalls, the same for every reader.
struct Selection: ParsableArguments {
    @Option(
        parsing: .unconditional,
        help: ArgumentHelp(
            "Stalls still open or ended since: 10m, 2h, '2 days ago', yesterday, 14:00, 2026-11-22, '2026-11-22 14:00', or RFC 3339.",
            valueName: "time"
        ),
        transform: Self.moment
    )
    var since: Moment?

    @Option(
        parsing: .unconditional,
        help: ArgumentHelp("Stalls that began by then; written as for --since.", valueName: "time"),
        transform: Self.moment
    )
    var until: Moment?

    @Option(
        help: ArgumentHelp(
            "Of this service. * and ? match as in a shell, also in --host, --release and --label.",
            valueName: "name"
        ),
        completion: Completions.services
    )
    var service: [String] = []

    @Option(help: ArgumentHelp("On this host.", valueName: "name"), completion: Completions.hosts)
    var host: [String] = []

    @Option(
        help: ArgumentHelp("Of this version of the service.", valueName: "version"),
        completion: Completions.releases
    )
    var release: [String] = []

    @Option(
        help: ArgumentHelp("Of the watched loop with this label.", valueName: "name"),
        completion: Completions.labels
    )
    var label: [String] = []

    @Option(
        help: ArgumentHelp("What was watched: \(OptionValues.types.list).", valueName: "type"),
        completion: OptionValues.types.completion,
        transform: OptionValues.types.parse
    )
    var type: [String] = []

    @Option(
        help: ArgumentHelp("How it showed: \(OptionValues.kinds.list).", valueName: "kind"),
        completion: OptionValues.kinds.completion,
        transform: OptionValues.kinds.parse
    )
    var kind: [String] = []

    @Option(
        help: ArgumentHelp("The cause: \(OptionValues.verdicts.list).", valueName: "verdict"),
        completion: OptionValues.verdicts.completion,
        transform: OptionValues.verdicts.parse
    )
    var verdict: [String] = []

    @Option(
        help: ArgumentHelp("At least this severe: \(OptionValues.severities.list).", valueName: "severity"),
        completion: OptionValues.severities.completion,
        transform: OptionValues.severities.parse
    )
    var severity: String?

    @Option(
        help: ArgumentHelp("The state: \(OptionValues.states.list).", valueName: "state"),
        completion: OptionValues.states.completion,
        transform: OptionValues.states.parse
    )
    var state: [String] = []

    @Option(help: ArgumentHelp("The culprit's name contains this.", valueName: "text"))
    var function: [String] = []

    @Option(
        help: ArgumentHelp(
            "Of this fault: its fingerprint, or at least its first four digits.",
            valueName: "fingerprint"
        ),
        completion: Completions.faults
    )
    var fingerprint: [FingerprintPrefix] = []

    @Option(parsing: .unconditional, help: ArgumentHelp("At least this long: 500ms, 1.5s.", valueName: "length"))
    var minDuration: DurationText?

    @OptionGroup var zone: ZoneOption

    func validate() throws {
        zone.use()
        try refuseEmptyNames()
        if let since, let end, end < since.timestamp {
            throw ValidationError("--until is before --since")
        }
        if let since, since.timestamp > .now() {
            throw ValidationError("--since is in the future")
        }
    }

    /// An empty name usually comes from an unset shell variable. It would match nothing, or everything.
    private func refuseEmptyNames() throws {
        for (option, values) in [
            ("service", service), ("host", host), ("release", release), ("label", label), ("function", function),
        ] where values.contains("") { throw ValidationError("the value of --\(option) is empty") }
    }

    private var end: Timestamp? { until?.timestamp(asEndAfter: since?.timestamp) }

    /// The chosen conditions as a predicate.
    var stalls: StallSelection {
        StallSelection(
            since: since?.timestamp,
            until: end,
            services: service.map { NamePattern($0) },
            hosts: host.map { NamePattern($0) },
            releases: release.map { NamePattern($0) },
            labels: label.map { NamePattern($0) },
            types: type.map { WatchedType(rawValue: $0) },
            kinds: kind.map { StallKind(rawValue: $0) },
            verdicts: verdict.map { Verdict(rawValue: $0).canonical },
            severity: severity.map { Severity(rawValue: $0) },
            states: state.map { StallState(rawValue: $0) },
            functions: function.map { NamePattern($0, isPart: true) },
            fingerprints: fingerprint,
            minDurationNs: minDuration?.nanoseconds
        )
    }

    @Sendable private static func moment(_ text: String) throws -> Moment {
        guard let moment = Moment(text) else {
            throw ValidationError(
                "give an age (10m, 2h, '2 days ago'), a day, a time, 'yesterday', or RFC 3339"
            )
        }
        return moment
    }
}

/// The time zone for input and output.
struct ZoneOption: ParsableArguments {
    @Flag(
        help: "Use UTC instead of local time ($TZ), in output and for times given without a zone. JSON is always UTC."
    )
    var utc = false

    /// Call this before reading or printing a time.
    func use() { if utc { ShownTime.useUTC() } }
}

/// The values that an option accepts: those that reports of this version contain.
struct OptionValues: Sendable {
    private let words: [String]
    /// Accepted, but not listed.
    private let former: [String]

    static let types = OptionValues(WatchedType.known)
    static let kinds = OptionValues(StallKind.known)
    static let verdicts = OptionValues(Verdict.known, former: [.blocked])
    static let severities = OptionValues(Severity.known)
    static let states = OptionValues(StallState.known)

    private init<Name: OpenName>(_ known: [Name], former: [Name] = []) {
        (words, self.former) = (known.map(\.rawValue), former.map(\.rawValue))
    }

    /// `on_cpu, waiting, deadlock`
    var list: String { words.joined(separator: ", ") }

    var completion: CompletionKind { .list(words) }

    /// A misspelt word would silently match nothing, so it is an error.
    var parse: @Sendable (String) throws -> String {
        { text in
            let word = text.lowercased().replacing("-", with: "_")
            guard (words + former).contains(word) else { throw ValidationError("give one of \(list)") }
            return word
        }
    }
}
