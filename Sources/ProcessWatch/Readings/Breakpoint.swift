import CProcessWatch
import Glibc
import RunLoopKit
import StallReports

/// A one-shot hardware breakpoint on one thread: see `process_watch_breakpoint`. Confined to the watcher's thread. Safe: only the calls
/// below read the mapping, which is removed together with this object.
@safe final class Breakpoint {
    private var event: process_watch_breakpoint
    private let target: Target

    /// The activation (the call on the stack) of the code at that address that the breakpoint is for.
    struct Target: Hashable {
        /// Nil: any activation.
        let stackPointer: UInt64?
        let descriptor: Int32?
        /// Whether the register of the first argument still has that argument when a system call returns.
        var keepsArgument = PROCESS_WATCH_KEEPS_ARGUMENT != 0

        /// A hit without registers may come from any activation, so it proves nothing.
        ///
        /// - Parameter namespace: This process's: the kernel's time of a hit is the one outside of time namespaces.
        func meaning(of hit: process_watch_hit, in namespace: TimeNamespace = .current) -> LoopRule.Hit {
            guard hit.has_registers else { return .other }
            let isMeant =
                if keepsArgument, let descriptor {
                    descriptor == Int32(truncatingIfNeeded: hit.first_argument)
                } else {
                    stackPointer == nil || hit.stack_pointer == stackPointer
                }
            let time = MonotonicInstant(nanoseconds: hit.time_ns)
            return isMeant ? .own(time.advanced(by: .nanoseconds(namespace.monotonicNs))) : .other
        }
    }

    /// - Parameters:
    ///   - place: The address, and the stack pointer of the activation to watch.
    ///   - descriptor: If a system call on this descriptor returns to that address, any stack pointer counts, provided that the
    ///     processor still has the descriptor in a register.
    /// - Returns: Nil if the breakpoint cannot be set.
    convenience init?(onThread threadID: Int32, at place: RestStack.Place, callOn descriptor: Int32? = nil) {
        let target = Target(stackPointer: place.stackPointer, descriptor: descriptor)
        self.init(onThread: threadID, at: place.address, target)
    }

    /// The same for any activation of the code at that address.
    convenience init?(onThread threadID: Int32, atAny address: UInt64) {
        self.init(onThread: threadID, at: address, Target(stackPointer: nil, descriptor: nil))
    }

    private init?(onThread threadID: Int32, at address: UInt64, _ target: Target) {
        var opened = unsafe process_watch_breakpoint()
        guard unsafe process_watch_breakpoint_open(threadID, address, &opened) == 0 else { return nil }
        unsafe event = opened
        self.target = target
    }

    deinit { unsafe process_watch_breakpoint_close(&event) }

    /// Returns the hit, if there was one, and forgets it.
    func take() -> LoopRule.Hit? {
        var hit = process_watch_hit()
        guard unsafe process_watch_breakpoint_take(&event, &hit) else { return nil }
        return target.meaning(of: hit)
    }
}

/// The breakpoints on a loop's thread that show whether the loop turns.
struct LoopBreakpoints {
    private let threadID: Int32
    /// Where the loop's wait returns.
    private var turns: [Breakpoint] = []
    /// The watched returns of the callout and of what it has called, outermost first.
    private var returns: [(place: RestStack.Place, breakpoint: Breakpoint?)] = []

    init(onThread threadID: Int32) { self.threadID = threadID }

    /// The hit where the wait returns, if there was one since the last call.
    func takeTurn() -> LoopRule.Hit? { LoopRule.Hit.first(of: turns.map { $0.take() }) }

    /// The same for each watched return.
    func takeReturns() -> [LoopRule.Hit?] { returns.map { $0.breakpoint?.take() } }

    /// Removes all of them.
    mutating func remove() { (turns, returns) = ([], []) }

    /// Sets a breakpoint at each of the places, or at none of them: if one were missing, a turn could go unseen.
    ///
    /// - Returns: Whether they are set.
    mutating func armTurn(at places: [RestStack.TurnPlace]) -> Bool {
        turns = []
        turns = places.compactMap { Breakpoint(onThread: threadID, at: $0.place, callOn: $0.descriptor) }
        if turns.count < places.count { turns = [] }
        return !turns.isEmpty
    }

    /// Watches as many of the places as there are free debug registers, outermost first, and no others.
    ///
    /// - Parameter pending: How many breakpoints, from the outermost, have not been hit. Those at the same places stay as they are, so that
    ///   they miss nothing.
    /// - Returns: How many are watched.
    mutating func watchReturns(to places: [RestStack.Place], keeping pending: Int) -> Int {
        let kept = zip(places, returns).prefix(pending).prefix { $0 == $1.place }.count
        returns.removeSubrange(kept...)
        for place in places.dropFirst(kept) {
            guard let breakpoint = Breakpoint(onThread: threadID, at: place) else { break }
            returns.append((place, breakpoint))
        }
        return returns.count
    }

    /// Watches one of the returns again.
    ///
    /// - Returns: Whether it is watched. Nil if there is no such return.
    mutating func armReturn(_ index: Int) -> Bool? {
        guard returns.indices.contains(index) else { return nil }
        returns[index].breakpoint = nil
        returns[index].breakpoint = Breakpoint(onThread: threadID, at: returns[index].place)
        return returns[index].breakpoint != nil
    }
}

/// Whether this process can set breakpoints, and what the user can do if it cannot.
struct BreakpointSupply {
    /// A descriptor, or a negative error number. While it is open, the kernel sets breakpoints without a delay.
    private let held: Int32
    let error: Int32

    init() {
        held = process_watch_hold_events()
        error = process_watch_try_breakpoint()
    }

    /// For tests: acts as if the kernel had returned this error.
    init(error: Int32) { (held, self.error) = (-1, error) }

    func close() { if held >= 0 { _ = Glibc.close(held) } }

    var isThere: Bool { error == 0 }

    /// Why breakpoints cannot be set, and what to do. Nil if they can.
    var problem: String? {
        guard error != 0 else { return nil }
        let consequence =
            "Without them only an uninterrupted system call is reported as a stall; everything else is unproven."
        switch error {
        case EACCES, EPERM:
            let level = readProcFile("/proc/sys/kernel/perf_event_paranoid").map { ", now \($0)" } ?? ""
            return "This process may not set hardware breakpoints (perf_event_open(2)). \(consequence) "
                + "Set kernel.perf_event_paranoid to 2 or less\(level), or give the command CAP_PERFMON; in a container its seccomp "
                + "profile has to permit perf_event_open."
        case ENOSPC:
            return "All hardware breakpoints are in use, perhaps by a debugger. \(consequence)"
        default:
            let reason = unsafe String(cString: strerror(error))
            return "This machine offers no hardware breakpoints (\(reason)). \(consequence)"
        }
    }
}
