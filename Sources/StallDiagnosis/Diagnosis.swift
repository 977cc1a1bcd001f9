import StackCapture
package import StallReports

/// Why a thread stood still, decided from what the kernel counted and where the thread was found. Pure.
package struct Diagnosis: Hashable, Sendable {
    package var verdict: Verdict
    /// One sentence for people.
    package var summary: String
    /// The call that it is about. Nil for a thread that did not wait in one.
    package var site: WaitSite?

    /// - Parameters:
    ///   - window: what the kernel counted over a stretch of the stall; nil when it could not be read.
    ///   - state: the thread's state when it was captured, as in proc(5).
    ///   - waits: what its samples found it at.
    ///   - descriptors: what those of the call stand for that it slept in for longest.
    ///   - hottest: the function that it was found in for longest, when it ran.
    ///   - wasSeen: whether anybody looked at the thread before it moved on.
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
        let site = Self.site(verdict, waits, isRemote)
        self.site = site
        self.summary =
            verdict == .unknown && !wasSeen
            ? "No cause could be read off: the stall was over before it was looked at."
            : Self.sentence(verdict, window, site, site == waits.longestCall ? descriptors : [], hottest)
                + Self.find(verdict, waits, descriptors)
    }

    /// The sentence with another hottest function, found out later. Any that is not of a thread that computed stays.
    package static func sentence(_ sentence: String, hottest: String?) -> String {
        // Of a pool, what is said of its workers comes before.
        guard sentence.contains("The thread was computing: ") else { return sentence }
        let figures = sentence.firstRange(of: hottestMark).map { sentence[..<$0.lowerBound] } ?? sentence.dropLast()
        return "\(figures)\(hottest.map { hottestMark + $0 } ?? "")."
    }

    private static let hottestMark = ", mostly in "

    /// The call that the verdict is about.
    package static func site(_ verdict: Verdict, _ waits: WaitProfile, _ isRemote: Bool) -> WaitSite? {
        isRemote ? waits.longestCall : waits.longestCall(forDisk: verdict == .diskWait)
    }

    private static func sentence(
        _ verdict: Verdict,
        _ window: EvidenceWindow?,
        _ site: WaitSite?,
        _ descriptors: [StallReport.Descriptor],
        _ hottest: String?
    ) -> String {
        switch verdict {
        case .onCPU: "The thread was computing: \(computing(window))\(hottest.map { hottestMark + $0 } ?? "")."
        case .starved: starving(window)
        case .paused: "The thread was stopped by a signal or a debugger."
        case .diskWait:
            site == nil
                ? "The thread waited for a disk, in page faults."
                : "The thread waited for \(descriptors.first.storage)\(place(site, descriptors))."
        case .blocked: lockOrCall(site, descriptors)
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
