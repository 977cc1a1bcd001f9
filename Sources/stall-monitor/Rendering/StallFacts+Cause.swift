import StallReports

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
