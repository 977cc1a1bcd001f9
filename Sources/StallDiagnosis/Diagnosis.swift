import StackCapture
package import StallReports

/// Why a thread was stalled, decided from the kernel's counts and the places where the thread was found. Pure.
package struct Diagnosis: Hashable, Sendable {
    package var verdict: Verdict
    /// One sentence for display.
    package var summary: String
    /// The call that the verdict is about. Nil if the thread did not wait in a call.
    package var site: WaitSite?

    /// - Parameters:
    ///   - window: The kernel's counts over a part of the stall. Nil if they could not be read.
    ///   - state: The thread's state when its stack was taken, as in proc(5).
    ///   - waits: Where its samples found it.
    ///   - descriptors: What the descriptors of its longest call refer to.
    ///   - hottest: The function in which it was found for longest while it ran.
    ///   - wasSeen: Whether any sample was taken before the thread moved on.
    package init(
        window: EvidenceWindow?,
        state: Character?,
        waits: WaitProfile,
        descriptors: [StallReport.Descriptor] = [],
        hottest: String? = nil,
        wasSeen: Bool = true
    ) {
        let isRemote = descriptors.first?.isRemote == true
        let verdict = Self.verdict(window, state, waits, isRemote: isRemote)
        self.verdict = verdict
        // The kernel may have counted waits for a disk in calls whose samples do not show them.
        let isAnyCall = isRemote || (verdict == .diskWait && waits.disk == .zero)
        let site = isAnyCall ? waits.longestCall : waits.longestCall(forDisk: verdict == .diskWait)
        self.site = site
        self.summary =
            verdict == .unknown && !wasSeen
            ? "No cause could be read off: the stall was over before it was looked at."
            : Self.sentence(verdict, window, state, site, site == waits.longestCall ? descriptors : [], hottest)
                + Self.sampledCall(verdict, waits, descriptors)
    }

    /// The sentence with another hottest function that was found later. Sentences about a thread that did not compute stay
    /// unchanged.
    package static func sentence(_ sentence: String, hottest: String?) -> String {
        // For a pool, a sentence about its workers comes first.
        guard sentence.contains("The thread was computing: ") else { return sentence }
        let figures = sentence.firstRange(of: hottestMark).map { sentence[..<$0.lowerBound] } ?? sentence.dropLast()
        return "\(figures)\(hottest.map { hottestMark + $0 } ?? "")."
    }

    private static let hottestMark = ", mostly in "

    private static func sentence(
        _ verdict: Verdict,
        _ window: EvidenceWindow?,
        _ state: Character?,
        _ site: WaitSite?,
        _ descriptors: [StallReport.Descriptor],
        _ hottest: String?
    ) -> String {
        switch (verdict, window) {
        case (.onCPU, let window?):
            "The thread was computing: \(computing(window))\(hottest.map { hottestMark + $0 } ?? "")."
        case (.starved, let window?): starving(window)
        case (.paused, _): "The thread was stopped by a signal or a debugger."
        case (.diskWait, _):
            site == nil
                ? "The thread waited for a disk, in page faults."
                : "The thread waited for \(descriptors.first.storage)\(place(site, descriptors))."
        case (.blocked, _): lockOrCall(site, descriptors)
        // On a busy machine the monitor, too, may get a processor only once during a stall.
        case (_, let window?) where window.length == .zero && state == "R":
            "No cause could be read off: the thread was running or ready to run, and its times were read only once."
        // Without /proc, as in some sandboxes, it is not known whether it computed.
        case (_, nil): "No cause could be read off: the thread's times could not be read."
        default: "No cause could be read off: the thread neither computed nor was found in a system call."
        }
    }

    private static func lockOrCall(_ site: WaitSite?, _ descriptors: [StallReport.Descriptor]) -> String {
        if site?.call.name == "futex", let address = site?.call.arguments.first {
            return
                "The thread waited for another thread: a lock, condition or semaphore at 0x\(String(address, radix: 16))."
        }
        return site.flatMap { purpose($0, descriptors) } ?? "The thread waited\(place(site, descriptors))."
    }
}

extension Diagnosis {
    /// Determines what took most of the time: running on a CPU, being ready without a CPU, or waiting. The largest share decides.
    /// The samples show what the thread waited for; each represents the time since the one before.
    ///
    /// | largest share | further | verdict |
    /// |---|---|---|
    /// | in the queue for a CPU | | starved |
    /// | on a CPU | | on_cpu |
    /// | waiting | half of it counted as a block device's (delay accounting) | disk_wait |
    /// | waiting | half of the sampled sleep in calls of a disk, state D, a page fault, or a remote file | disk_wait |
    /// | waiting | asleep in other calls | blocked |
    /// | waiting | never found asleep, half of the time stolen by the hypervisor | starved |
    /// | waiting | never found asleep, page faults that read a disk | disk_wait |
    /// | waiting | none of these | unknown |
    static func verdict(
        _ window: EvidenceWindow?,
        _ state: Character?,
        _ waits: WaitProfile,
        isRemote: Bool = false
    ) -> Verdict {
        if state == "T" || state == "t" { return .paused }
        let asleep = waits.calling + waits.faulting
        guard let window, window.length > .zero else {
            return asleep > .zero ? waiting(waits, isRemote) : .unknown
        }
        // A thread that was mostly found asleep was asleep, too, while the watcher did not run.
        let waited = window.waited + (asleep > waits.running ? window.unobserved : .zero)
        if window.runDelay > window.cpu, window.runDelay > waited { return .starved }
        if window.cpu >= waited { return .onCPU }
        if let blockIO = window.blockIO, blockIO * 2 >= waited { return .diskWait }
        if asleep > .zero { return waiting(waits, isRemote) }
        if let stolen = window.supply?.stealPerProcessor, stolen * 2 >= waited { return .starved }
        if window.majorFaults > 0 || state == "D" { return .diskWait }
        return .unknown
    }

    private static func waiting(_ waits: WaitProfile, _ isRemote: Bool) -> Verdict {
        let remote = isRemote ? waits.longestSpan : .zero
        return max(waits.disk, remote) * 2 >= waits.calling + waits.faulting ? .diskWait : .blocked
    }
}

extension SupplyWindow {
    /// Stolen time, averaged over all processors.
    var stealPerProcessor: Duration? { steal.map { $0 / max(1, processors) } }
}
