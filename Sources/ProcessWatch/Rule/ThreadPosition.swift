import StackCapture

/// The kernel's counters of a thread: `/proc/PID/task/TID/schedstat`. If two readings are equal, the thread has not run in
/// between.
package struct Schedule: Hashable, Sendable {
    /// Time on a processor, and time ready to run without one, in nanoseconds.
    var ran: UInt64
    var waited: UInt64
    /// How often it was given a processor.
    var slices: UInt64

    init(ran: UInt64, waited: UInt64, slices: UInt64) {
        (self.ran, self.waited, self.slices) = (ran, waited, slices)
    }

    /// Parses three decimal numbers. Nil for other text.
    init?(_ text: ArraySlice<UInt8>) {
        var fields = Fields(text)
        guard let ran = fields.decimal(), let waited = fields.decimal(), let slices = fields.decimal() else {
            return nil
        }
        self.init(ran: ran, waited: waited, slices: slices)
    }

    /// Whether the kernel counts what threads run (CONFIG_SCHED_INFO). Otherwise there is no such file, or it has 0 for each thread, and a
    /// thread that turns looks like one that has not run.
    ///
    /// - Parameter text: Of a thread that runs: it was given a processor at least once.
    package static func isCounted(in text: String?) -> Bool {
        guard let text, let schedule = Schedule(Array(text.utf8)[...]) else { return false }
        return schedule != Schedule(ran: 0, waited: 0, slices: 0)
    }
}

/// Where a thread is: `/proc/PID/task/TID/syscall`.
enum ThreadPosition: Hashable, Sendable {
    /// On a processor or ready to run, perhaps inside a system call.
    case running
    /// Asleep in a system call.
    case calling(WaitPlace)
    /// Asleep outside a system call: in a page fault, or stopped.
    case halted(stackPointer: UInt64, programCounter: UInt64)

    /// Parses `running`; `-1 sp pc`; or a call's number, six arguments, sp and pc. Nil for other text, and for a thread that has ended: the
    /// kernel lists a process's first thread until all threads have ended, and shows 0 for its registers.
    init?(_ text: ArraySlice<UInt8>) {
        if text.first == UInt8(ascii: "r") {
            self = .running
            return
        }
        var fields = Fields(text)
        if text.first == UInt8(ascii: "-") {
            fields.skip()
            guard let sp = fields.hexadecimal(), sp != 0, let pc = fields.hexadecimal() else { return nil }
            self = .halted(stackPointer: sp, programCounter: pc)
            return
        }
        guard let number = fields.decimal(), let number = Int(exactly: number), let first = fields.hexadecimal() else {
            return nil
        }
        for _ in 0..<5 { fields.skip() }
        guard let sp = fields.hexadecimal(), let pc = fields.hexadecimal() else { return nil }
        self = .calling(WaitPlace(call: number, argument: first, stackPointer: sp, programCounter: pc))
    }

    var wait: WaitPlace? { if case .calling(let place) = self { place } else { nil } }
}

extension SystemCall {
    /// Parses a system call and all its arguments from the same text. Nil if the thread does not sleep in one.
    init?(_ text: ArraySlice<UInt8>) {
        var fields = Fields(text)
        guard let number = fields.decimal().flatMap({ Int(exactly: $0) }) else { return nil }
        let arguments = (0..<6).compactMap { _ in fields.hexadecimal().map { UInt(truncatingIfNeeded: $0) } }
        guard arguments.count == 6 else { return nil }
        self.init(number: number, arguments: arguments)
    }
}

/// A system call made at one place in the code and on the stack.
struct WaitPlace: Hashable, Sendable {
    /// The system call's number.
    var call: Int
    /// Its first argument: the descriptor, for calls that wait on one.
    var argument: UInt64
    var stackPointer: UInt64
    /// The address at which the thread will continue.
    var programCounter: UInt64
}

/// Parses numbers separated by spaces. A number that overflows is an error.
private struct Fields {
    private var rest: ArraySlice<UInt8>

    init(_ text: ArraySlice<UInt8>) { rest = text }

    private mutating func next() -> ArraySlice<UInt8> {
        rest = rest.drop { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\n") }
        let field = rest.prefix { $0 != UInt8(ascii: " ") && $0 != UInt8(ascii: "\n") }
        rest = rest[field.endIndex...]
        return field
    }

    mutating func skip() { _ = next() }

    mutating func decimal() -> UInt64? {
        let field = next()
        guard !field.isEmpty else { return nil }
        var value: UInt64 = 0
        for byte in field {
            guard (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) else { return nil }
            let (scaled, isTooLarge) = value.multipliedReportingOverflow(by: 10)
            let (sum, carries) = scaled.addingReportingOverflow(UInt64(byte - UInt8(ascii: "0")))
            guard !isTooLarge, !carries else { return nil }
            value = sum
        }
        return value
    }

    /// A number that begins with `0x`.
    mutating func hexadecimal() -> UInt64? {
        let field = next()
        guard field.count > 2, field.count <= 18, field.starts(with: Array("0x".utf8)) else { return nil }
        var value: UInt64 = 0
        for byte in field.dropFirst(2) {
            switch byte {
            case UInt8(ascii: "0")...UInt8(ascii: "9"): value = value << 4 | UInt64(byte - UInt8(ascii: "0"))
            case UInt8(ascii: "a")...UInt8(ascii: "f"): value = value << 4 | UInt64(byte - UInt8(ascii: "a") + 10)
            default: return nil
            }
        }
        return value
    }
}
