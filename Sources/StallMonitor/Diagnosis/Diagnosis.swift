import StackCapture
import StallReports

/// Why a thread stood still, decided from what the kernel counted and where the thread was found. Pure.
struct Diagnosis: Hashable, Sendable {
    var verdict: Verdict
    /// One sentence for people.
    var summary: String

    /// - Parameters:
    ///   - window: what the kernel counted over a stretch of the stall; nil when it could not be read.
    ///   - state: the thread's state when it was captured, as in proc(5).
    ///   - call: the system call it was found in; nil for a thread found running.
    ///   - target: what that call's descriptor stands for.
    init(window: EvidenceWindow?, state: Character?, call: SystemCall?, target: String?) {
        let verdict = Self.verdict(window, state, call)
        self.verdict = verdict
        self.summary = Self.sentence(verdict, window, call, target)
    }

    /// Where most of the time went: on a CPU, in the queue for one, or waiting.
    private static func verdict(_ window: EvidenceWindow?, _ state: Character?, _ call: SystemCall?) -> Verdict {
        if state == "T" || state == "t" { return .paused }
        guard let window, window.length > .zero else { return call == nil ? .unknown : waiting(state, call) }
        let waited = window.length - window.cpu - window.runDelay
        if window.runDelay > window.cpu, window.runDelay > waited { return .starved }
        if window.cpu >= waited { return .onCPU }
        return call == nil && state != "D" ? .unknown : waiting(state, call)
    }

    private static func waiting(_ state: Character?, _ call: SystemCall?) -> Verdict {
        state == "D" || call?.name.map(diskCalls.contains) == true ? .diskWait : .blocked
    }

    /// Calls that wait for a disk and for nothing else.
    private static let diskCalls: Set<String> = ["fsync", "fdatasync", "msync", "sync", "sync_file_range", "syncfs"]

    private static func sentence(
        _ verdict: Verdict,
        _ window: EvidenceWindow?,
        _ call: SystemCall?,
        _ target: String?
    ) -> String {
        switch verdict {
        case .onCPU: "The thread was computing: \(share(window, \.cpu)) on a CPU."
        case .starved: "The thread was ready to run and got no CPU: \(share(window, \.runDelay)) in the queue for one."
        case .paused: "The thread was stopped by a signal or a debugger."
        case .diskWait: "The thread waited for a disk\(place(call, target))."
        case .blocked: lockOrCall(call, target)
        default: "No cause could be read off: the thread neither computed nor was found in a system call."
        }
    }

    private static func lockOrCall(_ call: SystemCall?, _ target: String?) -> String {
        if call?.name == "futex", let address = call?.arguments.first {
            return
                "The thread waited for another thread: a lock, condition or semaphore at 0x\(String(address, radix: 16))."
        }
        return "The thread waited\(place(call, target))."
    }

    private static func place(_ call: SystemCall?, _ target: String?) -> String {
        guard let call else { return "" }
        let name = call.name.map { "\($0)(2)" } ?? "system call \(call.number)"
        guard let descriptor = DescriptorTarget.descriptor(of: call) else { return " in \(name)" }
        return " in \(name) on descriptor \(descriptor)" + (target.map { " (\($0))" } ?? "")
    }

    private static func share(_ window: EvidenceWindow?, _ part: (EvidenceWindow) -> Duration) -> String {
        guard let window, window.length > .zero else { return "some time" }
        let percent = Int((100 * (part(window) / window.length)).rounded())
        return "\(min(percent, 100)) % of \(window.length.nanoseconds / 1_000_000) ms"
    }
}
