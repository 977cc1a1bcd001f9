import RunLoopKit
package import StackCapture
package import StallReports

// Sentences about a thread that was asleep.

extension Diagnosis {
    /// `in read(2) on descriptor 5 (pipe:[77])`, preceded by a blank. Empty without a call.
    static func place(_ site: WaitSite?, _ descriptors: [StallReport.Descriptor]) -> String {
        guard let site else { return "" }
        let name = site.call.words
        let path = site.decoded.argument("path").map { " of \($0)" } ?? ""
        guard let first = descriptors.first else { return " in \(name)\(path)" }
        if descriptors.count > 1, site.call.name?.contains("poll") == true || site.call.name?.contains("select") == true
        {
            let all = descriptors.map { "\($0.number) (\($0.words))" }.joined(separator: ", ")
            return " in \(name) on descriptors \(all)"
        }
        let words = first.words
        return " in \(name) on descriptor \(first.number)" + (words.isEmpty ? "" : " (\(words))")
    }

    /// A second sentence: in which call most samples found a thread that did not wait for most of the time, because a system call
    /// can also compute. Empty if there is no such call.
    static func sampledCall(
        _ verdict: Verdict,
        _ waits: WaitProfile,
        _ descriptors: [StallReport.Descriptor]
    ) -> String {
        guard verdict == .onCPU || verdict == .starved, waits.calling * 2 >= waits.total, let site = waits.longestCall
        else { return "" }
        return " Most samples found it\(place(site, descriptors))."
    }

    /// A sentence about calls for which more than the descriptor is known.
    static func purpose(_ site: WaitSite, _ descriptors: [StallReport.Descriptor]) -> String? {
        switch site.call.name {
        case "nanosleep", "clock_nanosleep": return sleep(site)
        case "wait4", "waitid": return child(site)
        case "flock", "fcntl": return fileLock(site, descriptors)
        case "connect":
            guard let peer = site.decoded.argument("addr") else { return nil }
            return "The thread waited for \(peer) to accept a connection\(place(site, descriptors))."
        default: return nil
        }
    }

    private static func sleep(_ site: WaitSite) -> String? {
        guard site.decoded.argument("flags") != "TIMER_ABSTIME", let time = site.decoded.argument("request") else {
            return nil
        }
        return "The thread slept\(place(site, [])), for \(time)."
    }

    private static func child(_ site: WaitSite) -> String? {
        let whom = site.process.map { "process \($0.text)" } ?? "a child process"
        return "The thread waited for \(whom) to end\(place(site, []))."
    }

    private static func fileLock(_ site: WaitSite, _ descriptors: [StallReport.Descriptor]) -> String? {
        guard let holder = descriptors.first?.holder else { return nil }
        return "The thread waited for a file lock that process \(holder.text) holds,\(place(site, descriptors))."
    }
}

extension SystemCall {
    /// Its page in the manual, `read(2)`; or its number.
    package var words: String { name.map { "\($0)(2)" } ?? "system call \(number)" }
}

extension StallReport.Descriptor? {
    /// What the file is stored on.
    var storage: String {
        guard let self, self.isRemote == true, let type = self.fileSystem else { return "a disk" }
        return "the \(type.hasPrefix("fuse") ? "user-space" : "network") file system \(type)"
    }
}

extension StallReport.Descriptor {
    /// `tcp 10.0.0.3:40112 → 10.0.0.7:5432, established, silent for 30s`, or a path.
    package var words: String {
        if let socket { return socket.words }
        var parts = [target ?? ""].filter { !$0.isEmpty }
        if isDeleted == true { parts.append("deleted") }
        if let note { parts.append(note) }
        return parts.joined(separator: ", ")
    }
}

extension StallReport.Socket {
    /// Its two ends and its state.
    package var words: String {
        let ends = [local, peer].compactMap { $0 }.joined(separator: " → ")
        var parts = [ends.isEmpty ? "\(family) socket" : "\(family) \(peer != nil && local == nil ? "→ " : "")\(ends)"]
        if let state { parts.append(state) }
        if let silentNs, silentNs >= 1_000_000_000 {
            parts.append("silent for \(DurationText(nanoseconds: silentNs).short)")
        }
        if let retransmits, retransmits > 0 { parts.append("\(retransmits) retransmits unanswered") }
        if let peerProcess { parts.append("peer process \(peerProcess.text)") }
        return parts.joined(separator: ", ")
    }
}

// Sentences about a thread that ran, or was ready to run.

extension Diagnosis {
    /// `98 % of 250 ms on a CPU, 240 ms in the program and 5 ms in the kernel`
    static func computing(_ window: EvidenceWindow) -> String {
        let share = "\(percent(window.cpu, of: window)) of \(milliseconds(window.length)) on a CPU"
        guard let parts = window.cpuParts else { return share }
        return "\(share), \(milliseconds(parts.user)) in the program and \(milliseconds(parts.system)) in the kernel"
    }

    static func starving(_ window: EvidenceWindow) -> String {
        "The thread was ready to run and got no CPU: \(scarcity(window))."
    }

    /// The most likely reason why the thread got no processor. A quota counts if it held the cgroup back in half of the periods,
    /// or for a third of the thread's delay; stolen time, averaged over all processors, if it is at least half of that delay.
    private static func scarcity(_ window: EvidenceWindow) -> String {
        let waited = "\(wholeMilliseconds(window.runDelay)) of \(milliseconds(window.length))"
        let queue = "it waited for one for \(waited) (\(percent(window.runDelay, of: window)))"
        guard let supply = window.supply else { return queue }
        let delay = max(window.runDelay, window.waited)
        if let (quota, counts) = supply.throttling, counts.throttledPeriods > 0,
            counts.throttledPeriods.multipliedSaturated(by: 2) >= counts.periods
                || Duration.nanoseconds(Int64(clamping: counts.throttledNanoseconds)) * 3 >= delay
        {
            return "throttled by the cgroup quota of \(number(quota)) % of a CPU, \(waited), "
                + "in \(counts.throttledPeriods) of \(counts.periods) periods"
        }
        if let stolen = supply.stealPerProcessor, stolen * 2 >= delay {
            return "\(queue), while the hypervisor gave \(milliseconds(stolen)) of each CPU to others"
        }
        let (all, pressure) = (supply.processors, pressure(supply, window))
        if let allowed = supply.allowed, allowed < all {
            return "\(queue); it may use \(allowed) of \(all) CPUs only\(pressure)"
        }
        if let runnable = supply.after.load?.runnable, runnable > all {
            return "\(queue), with \(runnable) runnable threads on \(all) CPU\(all == 1 ? "" : "s")\(pressure)"
        }
        return queue + pressure
    }

    /// `, CPU pressure 88 %, in its cgroup 40 %`
    private static func pressure(_ supply: SupplyWindow, _ window: EvidenceWindow) -> String {
        let system = supply.systemPressure.map { ", CPU pressure \(percent($0, of: window))" } ?? ""
        return system + (supply.cgroupPressure.map { ", in its cgroup \(percent($0, of: window))" } ?? "")
    }

    /// The share of a window that is not empty.
    private static func percent(_ part: Duration, of window: EvidenceWindow) -> String {
        "\(Int(saturating: (100 * min(1, part / window.length)).rounded())) %"
    }

    private static func milliseconds(_ duration: Duration) -> String { "\(wholeMilliseconds(duration)) ms" }

    /// Rounded as the figures are that a report's page shows beside the sentence.
    private static func wholeMilliseconds(_ duration: Duration) -> Int64 {
        duration.nanoseconds.addingSaturated(500_000) / 1_000_000
    }

    /// The number without its fraction if that is zero.
    private static func number(_ value: Double) -> String {
        value == value.rounded() && abs(value) < 1e9 ? "\(Int(value))" : "\((value * 10).rounded() / 10)"
    }
}
