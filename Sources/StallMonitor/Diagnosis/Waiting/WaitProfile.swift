import StackCapture

/// What a thread was found at over a stall: how long it ran, and how long it slept where. Pure.
struct WaitProfile: Hashable, Sendable {
    /// Samples that it was made of.
    private(set) var samples = 0
    /// Running, or about to.
    private(set) var running = Duration.zero
    /// Asleep outside a system call: in a page fault.
    private(set) var faulting = Duration.zero
    /// Asleep in system calls, by the first of each that was seen.
    private(set) var calls: [Call] = []

    struct Call: Hashable, Sendable {
        var site: WaitSite
        var span: Duration
    }

    /// - Parameter samples: with the time that each stands for.
    init(_ samples: [(sample: StackSample, span: Duration)]) {
        for (sample, span) in samples {
            self.samples += sample.count
            if let site = sample.site {
                add(site, span)
            } else if sample.stack.method == .signal {
                running += span
            } else {
                faulting += span
            }
        }
    }

    private mutating func add(_ site: WaitSite, _ span: Duration) {
        let known = calls.firstIndex { $0.site.isSame(as: site) }
        if let known { calls[known].span += span } else { calls.append(Call(site: site, span: span)) }
        // A disk wait shows its state in some samples only.
        if let known, site.state == "D" { calls[known].site.state = "D" }
    }

    var calling: Duration { calls.reduce(.zero) { $0 + $1.span } }
    var total: Duration { running + faulting + calling }
    /// Asleep for a disk, for all that is known.
    var disk: Duration { calls.filter(\.site.isForDisk).reduce(faulting) { $0 + $1.span } }
    /// The call it slept in for longest.
    var longestCall: WaitSite? { calls.max { $0.span < $1.span }?.site }

    /// How long it slept in that.
    var longestSpan: Duration { calls.map(\.span).max() ?? .zero }

    /// The longest one that is, or is not, for a disk.
    func longestCall(forDisk: Bool) -> WaitSite? {
        calls.filter { $0.site.isForDisk == forDisk }.max { $0.span < $1.span }?.site
    }
}

extension WaitSite {
    /// The same call on the same thing: what it counts and where its buffers are may differ.
    func isSame(as other: WaitSite) -> Bool {
        call.number == other.call.number && descriptors.map(\.link) == other.descriptors.map(\.link)
            && (descriptors.isEmpty || decoded.descriptors == other.decoded.descriptors)
            && (call.name != "futex" || call.arguments.first == other.call.arguments.first)
    }
}
