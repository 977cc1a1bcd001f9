import StackCapture

/// What a thread was found at over a stall: how long it ran, and how long it slept where. Pure.
package struct WaitProfile: Hashable, Sendable {
    /// Samples that it was made of.
    package private(set) var samples = 0
    /// Running, or about to.
    package private(set) var running = Duration.zero
    /// Asleep outside a system call: in a page fault.
    package private(set) var faulting = Duration.zero
    /// Asleep in system calls, by the first of each that was seen.
    private(set) var calls: [Call] = []

    struct Call: Hashable, Sendable {
        package var site: WaitSite
        package var span: Duration
    }

    /// What it was found at, and the time that this stands for.
    package struct Sighting {
        /// Nil for a thread that was in no call.
        package var site: WaitSite?
        package var isAsleep: Bool
        package var span: Duration
        /// Samples that showed it.
        package var count: Int

        package init(_ site: WaitSite?, isAsleep: Bool, for span: Duration, count: Int = 1) {
            (self.site, self.isAsleep, self.span, self.count) = (site, isAsleep, span, count)
        }
    }

    package init(_ sightings: [Sighting]) {
        for sighting in sightings {
            samples += sighting.count
            if let site = sighting.site {
                add(site, sighting.span)
            } else if sighting.isAsleep {
                faulting += sighting.span
            } else {
                running += sighting.span
            }
        }
    }

    private mutating func add(_ site: WaitSite, _ span: Duration) {
        let known = calls.firstIndex { $0.site.isSame(as: site) }
        if let known { calls[known].span += span } else { calls.append(Call(site: site, span: span)) }
        // A disk wait shows its state in some samples only.
        if let known, site.state == "D" { calls[known].site.state = "D" }
    }

    package var calling: Duration { calls.reduce(.zero) { $0 + $1.span } }
    package var total: Duration { running + faulting + calling }
    /// Asleep for a disk, for all that is known.
    package var disk: Duration { calls.filter(\.site.isForDisk).reduce(faulting) { $0 + $1.span } }
    /// The call it slept in for longest.
    package var longestCall: WaitSite? { calls.max { $0.span < $1.span }?.site }

    /// How long it slept in that.
    var longestSpan: Duration { calls.map(\.span).max() ?? .zero }

    /// The longest one that is, or is not, for a disk.
    package func longestCall(forDisk: Bool) -> WaitSite? {
        calls.filter { $0.site.isForDisk == forDisk }.max { $0.span < $1.span }?.site
    }
}

extension WaitSite {
    /// The same call on the same thing: what it counts and where its buffers are may differ.
    package func isSame(as other: WaitSite) -> Bool {
        call.number == other.call.number && descriptors.map(\.link) == other.descriptors.map(\.link)
            && (descriptors.isEmpty || decoded.descriptors == other.decoded.descriptors)
            && (call.name != "futex" || call.arguments.first == other.call.arguments.first)
    }
}
