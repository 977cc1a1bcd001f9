package import StackCapture
package import StallReports

/// Where a thread was found waiting. It is read while the thread waits, by operations that cannot wait themselves; names that may
/// take longer are looked up later.
package struct WaitSite: Hashable, Sendable {
    package var call: SystemCall
    /// The thread's state then, as in proc(5). Nil if it could not be read.
    package var state: Character?
    package var decoded: DecodedCall
    /// What the call's descriptors referred to.
    package var descriptors: [DescriptorReading]
    /// The process for whose end it waits. Nil if its number means another one here: see ``ObservedProcess/sharesOurNumbers``.
    package var process: StallReport.ProcessName?
    /// For a call that was restarted after a signal, under a name that does not show which call it is: the possible calls.
    package var continued: [WaitSite] = []

    /// - Parameters:
    ///   - state: The thread's present state.
    ///   - observed: The thread's process.
    ///   - read: Reads a number of bytes at an address. Nil if they cannot be read.
    package init(
        _ call: SystemCall,
        state: Character?,
        of observed: ObservedProcess = .own,
        read: MemoryReader
    ) {
        self.call = call
        self.state = state
        decoded = DecodedCall(call, read: read)
        descriptors = decoded.descriptors.map { DescriptorReading.read($0, of: observed) }
        process = awaitedProcess.flatMap { observed.sharesOurNumbers ? .named($0) : nil }
        guard call.name == "restart_syscall" else { return }
        // The kernel leaves the arguments in the registers.
        continued = Self.continuing.map {
            WaitSite(SystemCall(number: $0, arguments: call.arguments), state: state, of: observed, read: read)
        }
    }

    /// Identifies a call that was restarted after a signal, by its wrapper function on the stack.
    ///
    /// - Parameter symbols: The names of the innermost frames.
    package func settled(by symbols: [String]) -> WaitSite {
        for symbol in symbols {
            guard let name = Self.continuedNames.first(where: { symbol.contains($0.part) })?.call else { continue }
            // usleep(3) and others use either.
            let isClock = (call.arguments.first ?? 0) < 64
            let wanted = name == "nanosleep" && isClock ? "clock_nanosleep" : name
            return continued.first { $0.call.name == wanted } ?? self
        }
        return self
    }

    /// The calls that restart_syscall(2) continues, by their numbers on this architecture.
    private static let continuing = SystemCall.numbers(of: ["clock_nanosleep", "futex", "nanosleep", "poll"])

    /// Words in the names of the C library's wrappers.
    private static let continuedNames: [(part: String, call: String)] = [
        ("clock_nanosleep", "clock_nanosleep"), ("nanosleep", "nanosleep"), ("sleep", "nanosleep"), ("poll", "poll"),
        ("futex", "futex"), ("sem_", "futex"), ("pthread_cond_", "futex"),
    ]

    /// The process for whose end the call waits, if it is given by its number.
    private var awaitedProcess: Int32? {
        switch call.name {
        case "wait4": decoded.argument("pid").flatMap { Int32($0) }.flatMap { $0 > 0 ? $0 : nil }
        case "waitid" where decoded.argument("which") == "P_PID": decoded.argument("id").flatMap { Int32($0) }
        default: nil
        }
    }

    /// Whether it waits for a disk, by the call and the thread's state.
    var isForDisk: Bool {
        let name = call.name ?? ""
        return Self.diskCalls.contains(name) || (state == "D" && !Self.memoryCalls.contains(name))
    }

    /// Calls that sleep in state D, but wait for another thread's change of the memory map, or for a child's exec.
    private static let memoryCalls: Set<String> = [
        "brk", "clone", "clone3", "futex", "madvise", "mmap", "mprotect", "mremap", "munmap", "vfork",
    ]

    /// Calls that wait only for a disk.
    private static let diskCalls: Set<String> = ["fsync", "fdatasync", "msync", "sync", "sync_file_range", "syncfs"]
}

extension DecodedCall {
    /// The text of an argument.
    package func argument(_ name: String) -> String? { arguments?.first { $0.name == name }?.value }
}

/// Where a thread was found during a stall: how long it ran, and how long it was asleep in which places. Pure.
package struct WaitProfile: Hashable, Sendable {
    /// How many samples there were.
    package private(set) var samples = 0
    /// Running, or ready to run.
    package private(set) var running = Duration.zero
    /// Asleep outside a system call: in a page fault.
    package private(set) var faulting = Duration.zero
    /// Asleep in system calls, by the first sample of each.
    private(set) var calls: [Call] = []

    struct Call: Hashable, Sendable {
        var site: WaitSite
        var span: Duration
    }

    /// One place, and the time that it represents.
    package struct Sample {
        /// Nil for a thread that was in no call.
        package var site: WaitSite?
        package var isAsleep: Bool
        package var span: Duration
        /// How many samples showed it.
        package var count: Int

        package init(_ site: WaitSite?, isAsleep: Bool, for span: Duration, count: Int = 1) {
            (self.site, self.isAsleep, self.span, self.count) = (site, isAsleep, span, count)
        }
    }

    package init(_ all: [Sample]) {
        for sample in all {
            samples += sample.count
            if let site = sample.site {
                add(site, sample.span)
            } else if sample.isAsleep {
                faulting += sample.span
            } else {
                running += sample.span
            }
        }
    }

    private mutating func add(_ site: WaitSite, _ span: Duration) {
        let known = calls.firstIndex { $0.site.isSame(as: site) }
        if let known { calls[known].span += span } else { calls.append(Call(site: site, span: span)) }
        // Only some samples of a disk wait show its state.
        if let known, site.state == "D" { calls[known].site.state = "D" }
    }

    package var calling: Duration { calls.reduce(.zero) { $0 + $1.span } }
    package var total: Duration { running + faulting + calling }
    /// The known time asleep for a disk.
    package var disk: Duration { calls.filter(\.site.isForDisk).reduce(faulting) { $0 + $1.span } }
    /// The call in which it was asleep for longest.
    package var longestCall: WaitSite? { calls.max { $0.span < $1.span }?.site }

    /// How long it was asleep in that.
    var longestSpan: Duration { calls.map(\.span).max() ?? .zero }

    /// The longest call that is, or is not, for a disk.
    package func longestCall(forDisk: Bool) -> WaitSite? {
        calls.filter { $0.site.isForDisk == forDisk }.max { $0.span < $1.span }?.site
    }
}

extension WaitSite {
    /// The same call on the same file. Counts and buffer addresses may differ.
    package func isSame(as other: WaitSite) -> Bool {
        call.number == other.call.number && descriptors.map(\.link) == other.descriptors.map(\.link)
            && (descriptors.isEmpty || decoded.descriptors == other.decoded.descriptors)
            && (call.name != "futex" || call.arguments.first == other.call.arguments.first)
    }
}

/// The system calls in which event loops wait, by their numbers on this architecture.
package enum WaitCalls {
    /// Calls that wait on an epoll set, which is their first argument.
    package static let onEpollSet = Set(SystemCall.numbers(of: ["epoll_wait", "epoll_pwait", "epoll_pwait2"]))
    /// Calls that wait on one descriptor, which is their first argument.
    package static let onDescriptor = onEpollSet.union(SystemCall.numbers(of: ["io_uring_enter"]))
    /// Calls that wait on a list of descriptors.
    package static let onList = Set(SystemCall.numbers(of: ["poll", "ppoll", "select", "pselect6"]))
    /// The call with which the kernel continues a timed wait after a stop.
    package static let restarts = Set(SystemCall.numbers(of: ["restart_syscall"]))
}
