import ArgumentParser
import StallGate
import StallReports

/// The options that choose among stalls, the same for every reader.
struct Selection: ParsableArguments {
    @Option(
        parsing: .unconditional,
        help: ArgumentHelp(
            "Stalls still open or ended since: 10m, 2h, yesterday, 14:00, 2026-11-22, '2026-11-22 14:00', or RFC 3339.",
            valueName: "time"
        ),
        transform: Self.moment
    )
    var since: Moment?

    @Option(
        parsing: .unconditional,
        help: ArgumentHelp("Stalls that began by then; the same forms.", valueName: "time"),
        transform: Self.moment
    )
    var until: Moment?

    @Option(
        help: ArgumentHelp("Of this service; with * and ? as in a shell, like the next three.", valueName: "name"),
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
        help: ArgumentHelp("What was watched: \(Words.types.told).", valueName: "type"),
        completion: Words.types.completion,
        transform: Words.types.pick
    )
    var type: [String] = []

    @Option(
        help: ArgumentHelp("How it looked: \(Words.kinds.told).", valueName: "kind"),
        completion: Words.kinds.completion,
        transform: Words.kinds.pick
    )
    var kind: [String] = []

    @Option(
        help: ArgumentHelp("Why it stood: \(Words.verdicts.told).", valueName: "verdict"),
        completion: Words.verdicts.completion,
        transform: Words.verdicts.pick
    )
    var verdict: [String] = []

    @Option(
        help: ArgumentHelp("This or worse: \(Words.severities.told).", valueName: "severity"),
        completion: Words.severities.completion,
        transform: Words.severities.pick
    )
    var severity: String?

    @Option(
        help: ArgumentHelp("Where it stands: \(Words.states.told).", valueName: "state"),
        completion: Words.states.completion,
        transform: Words.states.pick
    )
    var state: [String] = []

    @Option(help: ArgumentHelp("The culprit's name contains it.", valueName: "text"))
    var function: [String] = []

    @Option(
        help: ArgumentHelp("Of this fault: its fingerprint, or four digits or more of it.", valueName: "fingerprint"),
        completion: Completions.faults
    )
    var fingerprint: [FingerprintPrefix] = []

    @Option(help: ArgumentHelp("As long as this, or longer: 500ms, 1.5s.", valueName: "length"))
    var minDuration: DurationText?

    @OptionGroup var zone: ZoneOption

    func validate() throws {
        zone.use()
        if let since, let until, until.timestamp < since.timestamp {
            throw ValidationError("--until is before --since: nothing lies between them")
        }
        if let since, since.timestamp > .now() {
            throw ValidationError("--since is in the future: nothing lies behind it")
        }
    }

    /// What was asked for, as a predicate.
    var stalls: StallSelection {
        StallSelection(
            since: since?.timestamp,
            until: until?.timestamp,
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
                "it is a length of time before now (10m, 2h), a day, a time, 'yesterday', or RFC 3339"
            )
        }
        return moment
    }
}

/// In which zone times are.
struct ZoneOption: ParsableArguments {
    @Flag(
        help: "Times are UTC: those shown, and those given without a zone. Otherwise local ($TZ). JSON is always UTC."
    )
    var utc = false

    /// To be called before a time is read or shown.
    func use() { if utc { ShownTime.useUTC() } }
}

/// The words that an option takes: those that this version's reports have.
struct Words: Sendable {
    private let words: [String]
    /// Taken, and not told.
    private var old: [String] = []

    static let types = Words(
        [WatchedType.runLoop, .eventLoop, .taskPool, .queue].map(\.rawValue)
    )
    static let kinds = Words([StallKind.blocked, .repeated, .congested, .longJob].map(\.rawValue))
    static let verdicts = Words(
        [Verdict.onCPU, .waiting, .deadlock, .starved, .diskWait, .paused, .unknown].map(\.rawValue),
        old: [Verdict.blocked.rawValue]
    )
    static let severities = Words([Severity.warning, .error, .critical].map(\.rawValue))
    static let states = Words([StallState.ongoing, .recovered, .terminated, .abandoned].map(\.rawValue))

    private init(_ words: [String], old: [String] = []) { (self.words, self.old) = (words, old) }

    /// `on_cpu, waiting, deadlock`
    var told: String { words.joined(separator: ", ") }

    var completion: CompletionKind { .list(words) }

    /// A misspelt word would choose nothing, in silence.
    var pick: @Sendable (String) throws -> String {
        { text in
            let word = text.lowercased().replacing("-", with: "_")
            guard (words + old).contains(word) else { throw ValidationError("it is one of \(told)") }
            return word
        }
    }
}
