package import StackCapture
package import StallReports

/// Where a thread was found waiting: read while it waited, by what cannot wait itself. Names that may have to be asked for come later.
package struct WaitSite: Hashable, Sendable {
    package var call: SystemCall
    /// The thread's state then, as in proc(5). Nil when it could not be read.
    package var state: Character?
    package var decoded: DecodedCall
    /// What the call's descriptors stood for.
    package var descriptors: [DescriptorSighting]
    /// The process whose end it waits for.
    package var process: StallReport.ProcessName?
    /// Of a call that goes on after a signal, under a name that does not say which it is: those it can be.
    package var continued: [WaitSite] = []

    /// - Parameters:
    ///   - state: of the thread, just now.
    ///   - observed: the thread's process.
    ///   - read: the bytes at an address; nil where they cannot be read.
    package init(
        _ call: SystemCall,
        state: Character?,
        of observed: ObservedProcess = .own,
        read: (UInt, Int) -> [UInt8]?
    ) {
        self.call = call
        self.state = state
        decoded = DecodedCall(call, read: read)
        descriptors = decoded.descriptors.map { DescriptorSighting.read($0, of: observed) }
        process = awaitedProcess.map(StallReport.ProcessName.named)
        guard call.name == "restart_syscall" else { return }
        // The kernel leaves the arguments in the registers.
        continued = Self.continuing.map {
            WaitSite(SystemCall(number: $0, arguments: call.arguments), state: state, of: observed, read: read)
        }
    }

    /// The call by what stands on the stack, where that is a wrapper of one that goes on after a signal.
    ///
    /// - Parameter symbols: of the innermost frames.
    package func settled(by symbols: [String]) -> WaitSite {
        for symbol in symbols {
            guard let name = Self.continuedNames.first(where: { symbol.contains($0.part) })?.call else { continue }
            // usleep(3) and others take either.
            let isClock = (call.arguments.first ?? 0) < 64
            let wanted = name == "nanosleep" && isClock ? "clock_nanosleep" : name
            return continued.first { $0.call.name == wanted } ?? self
        }
        return self
    }

    /// Calls that go on by restart_syscall(2), by their numbers here.
    private static let continuing = (0..<600).filter {
        ["clock_nanosleep", "futex", "nanosleep", "poll"].contains(SystemCall(number: $0, arguments: []).name)
    }

    /// What the C library's functions around them have in their names.
    private static let continuedNames: [(part: String, call: String)] = [
        ("clock_nanosleep", "clock_nanosleep"), ("nanosleep", "nanosleep"), ("sleep", "nanosleep"), ("poll", "poll"),
        ("futex", "futex"), ("sem_", "futex"), ("pthread_cond_", "futex"),
    ]

    /// One that is given by its number.
    private var awaitedProcess: Int32? {
        switch call.name {
        case "wait4": decoded.argument("pid").flatMap { Int32($0) }.flatMap { $0 > 0 ? $0 : nil }
        case "waitid" where decoded.argument("which") == "P_PID": decoded.argument("id").flatMap { Int32($0) }
        default: nil
        }
    }

    package init(
        call: SystemCall,
        state: Character? = "S",
        decoded: DecodedCall,
        descriptors: [DescriptorSighting] = []
    ) {
        (self.call, self.state, self.decoded, self.descriptors) = (call, state, decoded, descriptors)
    }

    /// Whether it waits for a disk, as far as the call and the thread's state say.
    var isForDisk: Bool {
        let name = call.name ?? ""
        return Self.diskCalls.contains(name) || (state == "D" && !Self.memoryCalls.contains(name))
    }

    /// Calls that sleep like those for a disk, but for another thread's change to the memory map, or for a child's exec.
    private static let memoryCalls: Set<String> = [
        "brk", "clone", "clone3", "futex", "madvise", "mmap", "mprotect", "mremap", "munmap", "vfork",
    ]

    /// Calls that wait for a disk and for nothing else.
    private static let diskCalls: Set<String> = ["fsync", "fdatasync", "msync", "sync", "sync_file_range", "syncfs"]
}

extension DecodedCall {
    /// An argument in words.
    package func argument(_ name: String) -> String? { arguments?.first { $0.name == name }?.value }
}

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
