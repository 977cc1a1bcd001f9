import StallReading
import StallReports
import StallStore

/// One evaluation of a rule: what it finds in the store.
struct AlertFinder {
    let rule: AlertRule
    let store: any StallStore
    let now: Timestamp

    struct Finding: Sendable {
        var subject: String
        var text: String
        /// Other subjects of the same alert: with a fault's former fingerprints, and those of earlier collectors, without the service.
        var aliases: [String] = []
        /// Whether it suffices to begin an alert. Otherwise it only lets an existing alert continue.
        var begins = true
    }

    /// What an evaluation of a rule found.
    struct Findings: Sendable {
        var all: [Finding]
        /// Whether a part of the store did not answer. Then findings are missing, and no alert may end.
        var isPartial = false
    }

    /// A monitor that has been silent for this long beyond the rule's time is no longer expected.
    private static let forgottenAfterNs: Int64 = 7 * Hours.dayNs
    /// The largest number of new faults, or of services, that one evaluation reports.
    private static let limit = 2000

    func findings() async throws -> Findings {
        switch rule.condition {
        case .newFault(let within): Findings(all: try await newFaults(within, .service))
        case .newInRelease(let within): Findings(all: try await newFaults(within, .release))
        case .rate(let stalls, let blocked, let within): try await rates((stalls, blocked), within)
        case .silence(let after): Findings(all: try await silent(after))
        }
    }

    private static func name(_ service: String) -> String { service.isEmpty ? "a service without a name" : service }

    private func query(_ withinNs: Int64) -> StallQuery {
        var query = StallQuery(
            team: rule.team,
            since: now.advanced(byNanoseconds: -withinNs),
            until: now.advanced(byNanoseconds: 1)
        )
        (query.services, query.releases) = (rule.services, rule.releases)
        (query.hosts, query.verdicts) = (rule.hosts, rule.verdicts)
        return query
    }

    private func newFaults(_ within: Int64, _ novelty: Novelty) async throws -> [Finding] {
        let query = query(within)
        var (findings, subjects): ([Finding], Set<String>) = ([], [])
        let new = try await store.newFaults(
            team: rule.team,
            services: rule.services,
            since: query.since,
            novelty: novelty,
            limit: Self.limit
        )
        for candidate in new {
            // A fault may be new in several releases of a service.
            guard !subjects.contains(Self.subject(candidate.fingerprint, candidate)),
                let finding = try await finding(candidate, query)
            else { continue }
            subjects.insert(finding.subject)
            findings.append(finding)
        }
        return findings
    }

    private static func subject(_ fingerprint: Fingerprint, _ new: NewFault) -> String {
        AlertSubject.fault(fingerprint, in: name(new.service))
    }

    /// Nil if the rule's other conditions exclude the fault.
    private func finding(_ new: NewFault, _ query: StallQuery) async throws -> Finding? {
        var query = query
        query.services = [new.service]
        if !new.release.isEmpty {
            guard rule.releases.isEmpty || rule.releases.contains(new.release) else { return nil }
            query.releases = [new.release]
        }
        guard let fault = try await store.fault(new.fingerprint, query) else { return nil }
        let release = new.release.isEmpty ? mostFrequent(fault.releases) : new.release
        let place = [new.service, release].filter { !$0.isEmpty }.joined(separator: " ")
        return Finding(
            subject: Self.subject(new.fingerprint, new),
            text: """
                new in \(Self.name(place)): \(fault.culprit ?? "code without a name"), \
                \(counted(fault.count, "stall")), the longest \(length(fault.longestNs))
                """,
            aliases: fault.aliases.map { Self.subject($0, new) }
                + ([new.fingerprint] + fault.aliases).map(\.rawValue)
        )
    }

    private func rates(_ limits: (stalls: Int64?, blockedNs: Int64?), _ within: Int64) async throws -> Findings {
        var query = query(within)
        let list = try await store.services(query)
        func passes(_ service: ServiceSum, _ part: Int64) -> Bool {
            limits.stalls.map { service.count > $0 / part } ?? false
                || limits.blockedNs.map { service.totalNs > $0 / part } ?? false
        }
        var findings = Findings(all: [], isPartial: list.isPartial)
        for service in list.services.filter({ passes($0, 2) }).prefix(Self.limit) {
            query.services = [service.name]
            let most = try await store.faults(query, by: .total, limit: 1).faults.first
            findings.all.append(
                Finding(
                    subject: Self.name(service.name),
                    text: """
                        \(Self.name(service.name)): \(counted(service.count, "stall")), \(length(service.totalNs)) in all, \
                        within \(length(within)); most by \(most?.culprit ?? "code without a name")
                        """,
                    begins: passes(service, 1)
                )
            )
        }
        return findings
    }

    private func silent(_ after: Int64) async throws -> [Finding] {
        let runs = try await store.silentRuns(
            team: rule.team,
            since: now.advanced(byNanoseconds: -after.addingSaturated(Self.forgottenAfterNs)),
            before: now.advanced(byNanoseconds: -after)
        ).filter { run in
            (rule.services.isEmpty || rule.services.contains(run.service))
                && (rule.releases.isEmpty || rule.releases.contains(run.release))
                && (rule.hosts.isEmpty || rule.hosts.contains(run.host))
        }
        let subjects = Dictionary(grouping: runs) { run in
            "\(Self.name(run.service)) on \(run.host)"
        }
        return subjects.sorted { $0.key < $1.key }.compactMap { subject, runs in
            guard let last = runs.map(\.updatedAt).max() else { return nil }
            let which = runs.count == 1 ? "nothing came" : "nothing came of \(runs.count) processes"
            return Finding(subject: subject, text: "\(subject): \(which) since \(moment(last)) UTC")
        }
    }
}

/// The subject of an alert about a fault: its fingerprint and the service in which it is new. That of earlier collectors was the fingerprint.
enum AlertSubject {
    static func fault(_ fingerprint: Fingerprint, in service: String) -> String {
        "\(fingerprint.rawValue) in \(service)"
    }

    /// The fault of an alert. Nil if the alert is about something else.
    static func fault(of subject: String) -> Fingerprint? {
        Fingerprint(rawValue: String(subject.prefix { $0 != " " }))
    }
}
