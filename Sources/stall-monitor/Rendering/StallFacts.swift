import StallReports

/// The named facts of a stall, most important first.
struct StallFacts {
    let report: StallReport
    /// Later stalls of the same fault that were only counted.
    var repeats: StallReport.Repeats?

    var rows: [(name: String, value: StyledText)] {
        let rows: [(String, StyledText?)] = [
            ("culprit", culprit), ("no names", report.missingNames.map { "\($0)" }), ("verdict", verdict),
            ("victims", report.victimText.map { "\($0)" }), ("lock", lock), ("circle", circle), ("evidence", evidence),
            ("waited on", waitedOn), ("processors", processors), ("lasted", duration), ("busy", busy),
            ("pool", report.pool.map { PoolTable.summary(of: $0) }),
            (report.watched.type == .taskPool ? "jobs" : "turns", turns), ("ended", processEnd),
            ("started", "\(report.startedAt)"), ("detected", detected), ("watched", watched), ("thread", thread),
            ("service", service), ("process", process), ("host", host),
            ("labels", labels), ("trace", trace),
            ("fingerprint", fingerprint), ("repeats", repeats.map { "\($0.whole)" }),
            ("metadata", metadata), ("run", report.run.map { "\($0)" }),
        ]
        return rows.compactMap { name, value in value.map { (name, $0) } }
    }

    private var culprit: StyledText {
        let module = report.culprit?.module.map { " (\($0))" } ?? ""
        let place = report.culprit?.place.map { " at \($0)" } ?? ""
        return "\(report.culpritText, .bold)\(place)\(module)"
    }

    private var verdict: StyledText {
        guard let call = report.cause.systemCall else { return "\(report.cause.verdict.canonical)" }
        let arguments = call.argumentText
        // A computing thread makes system calls too; it happened to be in this one.
        let link = [.onCPU, .starved].contains(report.cause.verdict) ? "; its stack was taken" : ""
        return
            "\(report.cause.verdict.canonical)\(link) in system call \(call.name ?? "number \(call.number)")(\(arguments))"
    }

    private var evidence: StyledText? {
        guard let evidence = report.cause.evidence else { return nil }
        var times: [String] = []
        if let time = processorTime(evidence) { times.append(time) }
        if let delay = evidence.runDelayNs {
            times.append("\(DurationText(nanoseconds: delay).short) waiting for a CPU")
        }
        if let window = evidence.windowNs, let last = times.popLast() {
            times.append("\(last), in a window of \(DurationText(nanoseconds: window).short)")
        }
        var parts = times
        parts += evidence.majorFaults.map { [quantity($0, "major fault")] } ?? []
        parts += evidence.blockIONs.map { ["\(DurationText(nanoseconds: $0).short) waiting for disks"] } ?? []
        parts += evidence.waitChannel.map { ["asleep in the kernel's \($0)"] } ?? []
        return parts.isEmpty ? nil : "\(parts.joined(separator: ", "))"
    }

    /// Sum and parts come from different files of /proc, so either may be missing.
    private func processorTime(_ evidence: StallReport.Evidence) -> String? {
        let sum = evidence.cpuNs.map { "\(DurationText(nanoseconds: $0).short) on CPU" }
        guard let user = evidence.userNs, let system = evidence.systemNs else { return sum }
        let split = [user, system].map { DurationText(nanoseconds: $0).short }
        return "\(sum ?? "on CPU") (\(split[0]) in user code, \(split[1]) in the kernel)"
    }

    private var duration: StyledText {
        let length = DurationText(nanoseconds: report.durationNs).description
        let range = [("at least", report.durationMinNs), ("at most", report.durationMaxNs)]
            .compactMap { word, value in value.map { "\(word) \(DurationText(nanoseconds: $0).short)" } }
        let end: String =
            switch report.state {
            case .ongoing: "so far"
            case .terminated: "until the process died"
            case .abandoned: "until the monitor stopped"
            default: ""
            }
        let excluded = report.excludedNs.map {
            ["\(DurationText(nanoseconds: $0).short) of it excluded"]
        }
        let notes = (end.isEmpty ? [] : [end]) + range + (excluded ?? [])
        return notes.isEmpty ? "\(length)" : "\(length) (\(notes.joined(separator: ", ")))"
    }

    /// The turns or callouts that make up the stall.
    private var busy: StyledText? {
        guard let busy = report.busy else { return nil }
        let (total, longest) = (DurationText(nanoseconds: busy.totalNs), DurationText(nanoseconds: busy.longestNs))
        let callouts = busy.callouts.map { ", \($0) callouts" } ?? ""
        let turns = busy.turns == 1 ? "1 turn" : "\(busy.turns) turns, the longest \(longest.short)"
        return "\(total.short) in \(turns)\(callouts)"
    }

    /// How long the loop's turns usually take.
    private var turns: StyledText? {
        guard let turns = report.watched.turnDurations else { return nil }
        let lengths = [("p50", turns.p50Ns), ("p99", turns.p99Ns), ("max", turns.maxNs)]
            .map { "\($0.0) \(DurationText(nanoseconds: $0.1).short)" }
        return "\(lengths.joined(separator: ", ")) of \(turns.count)"
    }

    private var processEnd: StyledText? {
        guard let end = report.processEnd else { return nil }
        let seen = end.lastSeenAt.map { " Last sign of life \($0.toMilliseconds)." } ?? ""
        return "\(end.cause): \(end.summary)\(seen)"
    }

    private var detected: StyledText {
        let after = DurationText(nanoseconds: report.detectedAt.nanoseconds(since: report.startedAt)).short
        let tick = DurationText(nanoseconds: report.rule.tickNs)
        let rule = report.rule
        let ticks = "\(rule.ticks) × \(tick)"
        let threshold = rule.turns.map { "\($0) turns in a row longer than \(ticks)" } ?? ticks
        return "after \(after) (threshold: \(threshold); rule: \(rule.name))"
    }

    private var watched: StyledText {
        let watched = report.watched
        let details = [
            watched.mode.map { "mode \($0)" }, watched.activity.map(Self.activity),
            watched.turn.map { "turn \($0)" },
        ].compactMap { $0 }
        return "\(watched.label, .bold) (\(([watched.type.rawValue] + details).joined(separator: ", ")))"
    }

    private static func activity(_ name: String) -> String {
        switch name {
        case "before_timers": "about to run timers"
        case "before_sources": "about to run sources"
        case "before_waiting": "about to wait"
        case "after_waiting": "running callbacks after its wait"
        default: "last seen at \(name)"
        }
    }

    private var thread: StyledText {
        let state = report.thread.state.map { ", state \($0)" } ?? ""
        return "\(report.thread.numberAndName)\(state)"
    }

    private var service: StyledText? {
        report.service.map { service in
            "\(([service.name] + [service.version, service.instance].compactMap { $0 }).joined(separator: " "))"
        }
    }

    private var process: StyledText {
        let started = report.process.startedAt.map { ", started \($0.toSeconds)" } ?? ""
        return "\(report.process.pid)\(report.process.executable.map { " " + $0 } ?? "")\(started)"
    }

    private var host: StyledText {
        let host = report.host
        let details = [host.kernel.map { "kernel \($0)" }, host.cpus.map { "\($0) CPUs" }].compactMap { $0 }
        return details.isEmpty ? "\(host.name)" : "\(host.name) (\(details.joined(separator: ", ")))"
    }

    var labels: StyledText? { report.labels.map { "\($0.joined(separator: " > "))" } }

    var trace: StyledText? {
        report.trace.map { "\($0.traceID)\($0.spanID.map { " span \($0)" } ?? "")" }
    }

    private var fingerprint: StyledText {
        let known =
            report.aliases.map { " (before symbolication: \($0.map(\.rawValue).joined(separator: ", ")))" } ?? ""
        let name = "\(report.fingerprint)\(report.isProvisional == true ? ", provisional" : known)"
        return "\(name)\(report.countedBefore)"
    }

    var metadata: StyledText? {
        let pairs = report.metadata.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }
        return pairs.isEmpty ? nil : "\(pairs.joined(separator: " "))"
    }
}

extension StallFacts {
    /// What the call's file descriptors refer to.
    var waitedOn: StyledText? {
        let all = report.cause.systemCall?.descriptors ?? []
        return all.isEmpty ? nil : "\(all.map(\.text).joined(separator: "; "))"
    }

    /// Why no CPU was available, if known.
    var processors: StyledText? {
        guard let found = report.cause.evidence?.processors else { return nil }
        var parts: [String] = []
        if let quota = found.quotaPercent, let throttled = found.throttledPeriods, let periods = found.periods {
            let time = found.throttledNs.map { " for \(DurationText(nanoseconds: $0).short)" } ?? ""
            parts.append(
                "quota \(quota.formatted) % of one CPU, throttled in \(throttled) of \(periods) periods\(time)"
            )
        }
        if let runnable = found.runnable, let count = found.count {
            parts.append("\(quantity(runnable, "runnable thread")) on \(quantity(count, "CPU"))")
        }
        if let allowed = found.allowed, allowed != found.count { parts.append("\(allowed) of them allowed") }
        parts += [
            ("CPU pressure", found.systemPressureNs), ("in the cgroup", found.cgroupPressureNs),
            ("stolen", found.stealNs),
        ]
        .compactMap { name, time in time.flatMap { $0 > 0 ? "\(name) \(DurationText(nanoseconds: $0).short)" : nil }
        }
        return parts.isEmpty ? nil : "\(parts.joined(separator: ", "))"
    }
}

extension StallReport.SystemCall {
    /// `fd=5, count=4096`; register values if the call is unknown.
    var argumentText: String {
        guard let decoded else { return arguments.prefix(6).map(\.description).joined(separator: ", ") }
        return decoded.map { "\($0.name)=\($0.value)" }.joined(separator: ", ")
    }
}

extension StallReport.Descriptor {
    /// `5: socket tcp 10.0.0.3:40112 → 10.0.0.7:5432, established`
    fileprivate var text: String {
        var parts = ["\(number): \(kind)\(socket == nil ? target.map { " \($0)" } ?? "" : "")"]
        if isDeleted == true { parts.append("deleted") }
        if let fileSystem { parts.append((isRemote == true ? "network file system " : "") + fileSystem) }
        if let holder { parts.append("locked by process \(holder.text)") }
        if let socket { parts += socket.parts }
        if let note { parts.append(note) }
        return parts.joined(separator: ", ")
    }
}

extension StallReport.Socket {
    fileprivate var parts: [String] {
        var parts = ["\(family) \([local ?? "-", peer ?? "-"].joined(separator: " → "))"]
        if let state { parts.append(state) }
        if let silentNs { parts.append("nothing received for \(DurationText(nanoseconds: silentNs).short)") }
        if let retransmits, retransmits > 0 { parts.append("\(retransmits) retransmits unanswered") }
        if let unacknowledged, unacknowledged > 0 { parts.append("\(unacknowledged) segments unacknowledged") }
        if let peerProcess { parts.append("peer process \(peerProcess.text)") }
        return parts
    }
}

extension Double {
    /// Without the fraction if it is zero.
    fileprivate var formatted: String {
        self == rounded() && abs(self) < 1e9 ? "\(Int(self))" : "\((self * 10).rounded() / 10)"
    }
}

extension StallFacts {
    /// The lock that the thread waited for, and its owner.
    var lock: StyledText? {
        report.cause.lock.map { lock in StyledText(lock.text + (lock.knownBy.map { ", known from its \($0)" } ?? "")) }
    }

    /// The cycle of waits of a deadlock.
    var circle: StyledText? {
        guard let cycle = report.cause.cycle, let first = cycle.first else { return nil }
        let links = cycle.map { "\($0.thread.numberAndName) → \($0.lock.kind) \($0.lock.address)" }
        return StyledText((links + [first.thread.numberAndName]).joined(separator: " → "))
    }
}

extension StallReport.Lock {
    var text: String {
        let name = "\(kind) at \(address)" + (label.map { " (\($0))" } ?? "")
        if let gone = abandonedBy { return name + ", left behind by thread \(gone), which has ended" }
        guard let owner else { return name + (kind.canHaveOwner ? ", holder unknown" : ", which nobody owns") }
        return "\(name), held by thread \(owner.numberAndName)"
    }
}
