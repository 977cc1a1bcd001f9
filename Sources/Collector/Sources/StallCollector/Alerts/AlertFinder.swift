internal import StallReports
internal import StallStore

/// What a rule finds in the store at a moment.
struct AlertFinder {
    struct Finding: Sendable {
        var subject: String
        var text: String
        /// Enough to begin an alert. What is not is enough for one that has begun to go on.
        var begins = true
    }

    /// A service that has been silent for longer is not expected any more.
    static let forgottenAfterNs: Int64 = 7 * 86_400_000_000_000
    /// Faults that are known not to be new, by team and fingerprint: nobody has to ask again.
    private var old: Set<String> = []

    mutating func findings(_ rule: AlertRule, _ store: any StallStore, now: Timestamp) async throws -> [Finding] {
        switch rule.condition {
        case .newFault(let within): try await newFaults(rule, within, store, now)
        case .rate(let stalls, let blocked, let within):
            try await rates(rule, (stalls, blocked), within, store, now)
        case .silence(let after): try await silent(rule, after, store, now)
        }
    }

    private static func query(_ rule: AlertRule, _ withinNs: Int64, _ now: Timestamp) -> StallQuery {
        var query = StallQuery(
            team: rule.team,
            since: now.advanced(byNanoseconds: -withinNs),
            until: now.advanced(byNanoseconds: 1)
        )
        (query.services, query.releases) = (rule.services, rule.releases)
        (query.hosts, query.verdicts) = (rule.hosts, rule.verdicts)
        return query
    }

    private mutating func newFaults(
        _ rule: AlertRule,
        _ within: Int64,
        _ store: any StallStore,
        _ now: Timestamp
    ) async throws -> [Finding] {
        let query = Self.query(rule, within, now)
        // What the services had before, in whatever release and on whatever host.
        var history = StallQuery(team: rule.team, since: Timestamp(seconds: 0), until: query.until)
        history.services = rule.services
        var before = history
        before.until = query.since
        // A store that has no past knows of nothing that it is new.
        guard try await store.count(before, limit: 1) > 0 else { return [] }
        var findings: [Finding] = []
        for fault in try await store.faults(query, by: .total, limit: 1000).faults {
            let key = "\(rule.team) \(rule.services.sorted()) \(fault.fingerprint)"
            guard !old.contains(key) else { continue }
            guard let whole = try await store.fault(fault.fingerprint, history), whole.firstAt >= query.since else {
                if old.count >= 100_000 { old.removeAll() }
                old.insert(key)
                continue
            }
            let place = [main(fault.services), main(fault.releases)].filter { !$0.isEmpty }.joined(separator: " ")
            findings.append(
                Finding(
                    subject: fault.fingerprint.rawValue,
                    text: """
                        new in \(place.isEmpty ? "a service without a name" : place): \(fault.culprit ?? "code without a name"), \
                        \(counted(fault.count, "stall")), the longest \(length(fault.longestNs))
                        """
                )
            )
        }
        return findings
    }

    private func rates(
        _ rule: AlertRule,
        _ limits: (stalls: Int64?, blockedNs: Int64?),
        _ within: Int64,
        _ store: any StallStore,
        _ now: Timestamp
    ) async throws -> [Finding] {
        var query = Self.query(rule, within, now)
        let services = rule.services.isEmpty ? try await store.choices(query).services : rule.services
        var findings: [Finding] = []
        for service in services {
            query.services = [service]
            let faults = try await store.faults(query, by: .total, limit: 1000).faults
            let (stalls, blocked) = (Self.sum(faults.map(\.count)), Self.sum(faults.map(\.totalNs)))
            func passes(_ part: Int64) -> Bool {
                limits.stalls.map { stalls > $0 / part } ?? false
                    || limits.blockedNs.map { blocked > $0 / part } ?? false
            }
            guard passes(2) else { continue }
            findings.append(
                Finding(
                    subject: service,
                    text: """
                        \(service): \(counted(stalls, "stall")), \(length(blocked)) in all, within \(length(within)); \
                        most by \(faults.first?.culprit ?? "code without a name")
                        """,
                    begins: passes(1)
                )
            )
        }
        return findings
    }

    /// Of numbers from 0, held at the end of 64 bits: what was sent is not trusted.
    static func sum(_ numbers: [Int64]) -> Int64 {
        numbers.reduce(0) { sum, number in
            let (total, isOver) = sum.addingReportingOverflow(number)
            return isOver ? .max : total
        }
    }

    private func silent(
        _ rule: AlertRule,
        _ after: Int64,
        _ store: any StallStore,
        _ now: Timestamp
    ) async throws -> [Finding] {
        let runs = try await store.latestRuns(
            team: rule.team,
            since: now.advanced(byNanoseconds: -max(Self.forgottenAfterNs, after))
        )
        return runs.compactMap { run in
            guard run.isRunning, run.updatedAt < now.advanced(byNanoseconds: -after),
                rule.services.isEmpty || rule.services.contains(run.service),
                rule.releases.isEmpty || rule.releases.contains(run.release),
                rule.hosts.isEmpty || rule.hosts.contains(run.host)
            else { return nil }
            let name = "\(run.service.isEmpty ? "a service without a name" : run.service) on \(run.host)"
            return Finding(subject: name, text: "\(name): nothing came since \(moment(run.updatedAt)) UTC")
        }
    }
}
