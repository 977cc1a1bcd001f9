import FileVersions
import Logging
import ServiceLifecycle
import StallReports
import StallStore

/// Evaluates the rules regularly, and tells receivers which alerts began and ended. Each change is sent once, even across a
/// restart.
actor AlertWatch: Service {
    private let store: any StallStore
    private let path: String
    private let every: Duration
    /// Nil: there are no tokens.
    private let tokens: TokenFile?
    private let metrics: CollectorMetrics
    private let logger: Logger
    private(set) var rules: AlertRules
    /// Of the rules' file, then of those that it names.
    private var versions: [FileVersion?]
    /// Why the rules' file cannot be used now. It may name a file that is still to come, so it is read again in each round.
    private var mistake: String?
    /// Alerts that receivers were told, and that the store has not noted yet.
    private var unsaved: [Alert] = []
    private let patience: Duration
    /// Before this moment no rule about silence is evaluated.
    private var silenceFrom = ContinuousClock.now
    /// The last evaluation: its beginning by both clocks, and its end.
    private var last: (wall: Timestamp, begin: ContinuousClock.Instant, end: ContinuousClock.Instant)?

    /// - Parameter patience: How long senders need until all of them have tried again, after they could not reach the collector or its
    ///   store. Until then, every monitor can seem silent.
    /// - Throws: If the rules cannot be used. If that happens later, the rules stay unchanged.
    init(
        _ path: String,
        _ store: any StallStore,
        every: Duration,
        patience: Duration = .zero,
        tokens: TokenFile? = nil,
        metrics: CollectorMetrics,
        logger: Logger
    ) throws(CollectorError) {
        versions = [FileVersion(path)]
        rules = try AlertRules(path: path)
        (self.path, self.store, self.every, self.patience) = (path, store, every, patience)
        (self.tokens, self.metrics, self.logger) = (tokens, metrics, logger)
    }

    nonisolated func run() async throws {
        await awaitSenders()
        await checkTeams()
        await cancelWhenGracefulShutdown {
            while !Task.isCancelled {
                await self.round()
                do { try await Task.sleep(for: self.every) } catch { return }
            }
        }
    }

    /// To be called when nothing could be stored until now: the store did not answer, or this process did not run.
    func awaitSenders() { silenceFrom = .now + patience }

    /// How much longer than usual the time between two evaluations may be. A machine that is busy needs some of this.
    private static let lateness = Duration.seconds(60)

    /// Whether this process or its machine stood still since the last evaluation. A virtual machine's other clock may then stand still, too,
    /// while the wall clock is set to the present afterwards.
    private func stoodStill(_ wall: Timestamp, _ instant: ContinuousClock.Instant) -> Bool {
        guard let last else { return false }
        let shown = Duration.nanoseconds(wall.nanoseconds(since: last.wall))
        return instant - last.end > every + Self.lateness || shown - (instant - last.begin) > Self.lateness
    }

    /// Evaluates the rules once, and sends the messages. Failures are retried in the next round.
    func round(now: Timestamp = .now(), at instant: ContinuousClock.Instant = .now) async {
        if stoodStill(now, instant) { awaitSenders() }
        refresh()
        do {
            try await save([])
            try await evaluate(now)
            last = (now, instant, .now)
            try await notify(now)
        } catch {
            // The collector is ending. Receivers without this alert get it after the next start.
            if Task.isCancelled { return }
            awaitSenders()
            logger.error("alerts could not be looked after", metadata: ["error": "\(error)"])
        }
    }

    private func refresh() {
        // Rules that name other files than before are read twice: the files' versions are always those before they were read.
        let found = ([path] + rules.receivers.compactMap(\.file)).map { FileVersion($0) }
        let isChanged = found != versions
        guard isChanged || mistake != nil else { return }
        versions = found
        let former = mistake.take()
        do throws(CollectorError) {
            rules = try AlertRules(path: path)
            checkTeams()
        } catch {
            mistake = error.description
            guard isChanged || mistake != former else { return }
            logger.error("the rules for alerts stay as they were", metadata: ["error": "\(error)"])
        }
    }

    /// A rule about a team that has no token finds nothing. This is easily missed: a rule that names no team is about 'default'.
    func checkTeams() {
        for rule in rules.rules where tokens?.has(team: rule.team) == false {
            logger.warning(
                "a rule for alerts is about a team that has no token",
                metadata: ["rule": "\(rule.name)", "team": "\(rule.team)"]
            )
        }
    }

    private struct Key: Hashable {
        var team: String
        var rule: String
        var subject: String

        init(_ rule: AlertRule, _ subject: String) {
            (team, self.rule, self.subject) = (rule.team, rule.name, subject)
        }

        init(_ alert: Alert) { (team, rule, subject) = (alert.team, alert.rule, alert.subject) }
    }

    /// Begins and ends alerts.
    private func evaluate(_ now: Timestamp) async throws {
        let known = Dictionary(try await store.alerts().map { (Key($0), $0) }) { $1 }
        var (changed, found): ([Alert], Set<Key>) = ([], [])
        // Rules whose alerts do not end now.
        var partial: Set<String> = []
        for rule in rules.rules {
            if case .silence = rule.condition, ContinuousClock.now < silenceFrom {
                partial.insert(rule.name)
                continue
            }
            let findings = try await findings(rule, now)
            if findings.isPartial { partial.insert(rule.name) }
            for finding in findings.all {
                // A fault that has got names keeps its alert.
                let keys = ([finding.subject] + finding.aliases).map { Key(rule, $0) }
                if let key = keys.first(where: { key in known[key].map { $0.endedAt == nil } ?? false }) {
                    found.insert(key)
                } else if finding.begins {
                    changed.append(begun(finding, rule, known[keys[0]], now))
                }
            }
        }
        for (key, alert) in known
        where alert.endedAt == nil && !found.contains(key) && !partial.contains(key.rule) {
            var alert = alert
            alert.endedAt = now
            changed.append(alert)
        }
        try await store.change(alerts: changed, removing: [])
    }

    /// - Parameter last: The same alert as it was before. For receivers that were not yet told of its end, it has not ended.
    private func begun(_ finding: AlertFinder.Finding, _ rule: AlertRule, _ last: Alert?, _ now: Timestamp) -> Alert {
        var alert = Alert(
            team: rule.team,
            rule: rule.name,
            subject: finding.subject,
            text: finding.text,
            beganAt: now
        )
        if let last { alert.toldBegin = last.toldBegin.subtracting(last.toldEnd) }
        return alert
    }

    /// Notes what receivers were told. What the store does not take now, it is given first in the next round, and until then nobody is told
    /// more: a full disk must not repeat a message every round.
    private func save(_ told: [Alert]) async throws {
        unsaved += told
        // In a task of its own, which is not cancelled when the collector ends: the receiver would be told again.
        try await Task { [store, unsaved] in try await store.change(alerts: unsaved, removing: []) }.value
        unsaved = []
    }

    /// If a rule cannot be evaluated, it is unknown what it would find, and the other rules are evaluated.
    private func findings(_ rule: AlertRule, _ now: Timestamp) async throws -> AlertFinder.Findings {
        do {
            return try await AlertFinder(rule: rule, store: store, now: now).findings()
        } catch {
            try Task.checkCancellation()
            logger.error(
                "a rule for alerts could not be evaluated",
                metadata: ["rule": "\(rule.name)", "error": "\(error)"]
            )
            if case .silence = rule.condition { awaitSenders() }
            return AlertFinder.Findings(all: [], isPartial: true)
        }
    }

    /// Sends each receiver the alerts that it has not received yet, to all at once: one that does not answer delays no other.
    private func notify(_ now: Timestamp) async throws {
        var alerts = try await store.alerts()
        let failure = await withTaskGroup { group in
            for receiver in Set(rules.receivers) {
                let news = alerts.filter { isNews($0, for: receiver, now) }
                guard !news.isEmpty else { continue }
                group.addTask { [address = rules.address] in
                    do {
                        try await receiver.send(AlertMessage(news, address))
                        return (receiver, news, nil as (any Error)?)
                    } catch {
                        return (receiver, news, error)
                    }
                }
            }
            var failure: (any Error)?
            for await (receiver, news, error) in group {
                note(error, receiver, news.count)
                guard error == nil else { continue }
                let told = Set(news.map { Key($0) })
                for index in alerts.indices where told.contains(Key(alerts[index])) {
                    alerts[index] = Self.told(alerts[index], receiver)
                }
                do { try await save(alerts.filter { told.contains(Key($0)) }) } catch { failure = error }
            }
            return failure
        }
        try Task.checkCancellation()
        if let failure { throw failure }
        try await removeDone()
    }

    /// Removes alerts that have ended, if all present receivers that were told of the beginning were told of the end.
    private func removeDone() async throws {
        let receivers = Set(rules.receivers.map(\.key))
        let done = try await store.alerts().filter { alert in
            alert.endedAt != nil && alert.toldBegin.intersection(receivers).isSubset(of: alert.toldEnd)
        }
        try await store.change(alerts: [], removing: done)
    }

    private func isNews(_ alert: Alert, for receiver: AlertReceiver, _ now: Timestamp) -> Bool {
        guard !rules.silences.contains(where: { $0.covers(alert.rule, alert.subject, at: now) }) else { return false }
        let isToldBegin = alert.toldBegin.contains(receiver.key)
        return alert.endedAt == nil ? !isToldBegin : isToldBegin && !alert.toldEnd.contains(receiver.key)
    }

    /// - Parameter error: Why the receiver was not told. It is tried again in the next round, or after the next start.
    private func note(_ error: (any Error)?, _ receiver: AlertReceiver, _ count: Int) {
        guard let error else { return metrics.alertsTold.add(count) }
        if Task.isCancelled { return }
        metrics.alertFailures.add(1)
        logger.error(
            "alerts could not be told",
            metadata: ["receiver": "\(receiver.name)", "count": "\(count)", "error": "\(error)"]
        )
    }

    private static func told(_ alert: Alert, _ receiver: AlertReceiver) -> Alert {
        var alert = alert
        if alert.endedAt == nil {
            alert.toldBegin.insert(receiver.key)
        } else {
            alert.toldEnd.insert(receiver.key)
        }
        return alert
    }
}
