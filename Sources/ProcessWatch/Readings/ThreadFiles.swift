import Glibc
import StackCapture

/// One thread's files in /proc. They stay open, so that a look at a resting thread is one system call. Confined to the watcher's
/// thread.
final class ThreadFiles {
    private let schedule: Int32
    private let call: Int32
    private let state: Int32
    private let task: String
    private(set) var name: String
    /// The last reading of the counts, and its text. A resting thread's text stays the same, so that it is not parsed again.
    private var lastSchedule: (text: [UInt8], value: Schedule)?

    /// Nil if there is no such thread, or if its files cannot be read.
    init?(threadID: Int32, ofProcess processID: Int32) {
        let task = "/proc/\(processID)/task/\(threadID)"
        self.task = task
        func file(_ name: String) -> Int32 { unsafe open("\(task)/\(name)", O_RDONLY | O_CLOEXEC) }
        schedule = file("schedstat")
        call = file("syscall")
        state = file("stat")
        name = readText("\(task)/comm") ?? ""
        guard schedule >= 0, call >= 0, state >= 0 else { return nil }
    }

    deinit { for file in [schedule, call, state] where file >= 0 { close(file) } }

    /// A new thread gets its name some time after its start.
    func readNameAgain() { name = readText("\(task)/comm") ?? name }

    /// Nil once the thread has ended.
    func readSchedule() -> Schedule? {
        let limit = 96
        return unsafe withUnsafeTemporaryAllocation(byteCount: limit, alignment: 1) { buffer in
            let count = unsafe pread(schedule, buffer.baseAddress, limit, 0)
            guard count > 0 else { return nil }
            let text = unsafe UnsafeRawBufferPointer(rebasing: buffer[..<count])
            if let lastSchedule, unsafe lastSchedule.text.elementsEqual(text) { return lastSchedule.value }
            let bytes = unsafe [UInt8](text)
            lastSchedule = Schedule(bytes[...]).map { (bytes, $0) }
            return lastSchedule?.value
        }
    }

    /// Nil once the thread has ended, or if the text cannot be parsed.
    func readPosition() -> ThreadPosition? { read(call, 256, ThreadPosition.init) }

    /// The system call in which the thread sleeps. Nil if it does not sleep in one.
    func readCall() -> SystemCall? { read(call, 256, SystemCall.init) }

    /// Whether the thread is stopped, by a signal or by a tracer.
    func isStopped() -> Bool {
        read(state, 256) { text in
            guard let end = text.lastIndex(of: UInt8(ascii: ")")), end + 2 < text.endIndex else { return nil }
            return text[end + 2] == UInt8(ascii: "T") || text[end + 2] == UInt8(ascii: "t")
        } ?? false
    }

    private func read<Value>(_ file: Int32, _ limit: Int, _ parse: (ArraySlice<UInt8>) -> Value?) -> Value? {
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: limit) { buffer, count in
            count = unsafe max(0, pread(file, buffer.baseAddress, limit, 0))
        }
        return bytes.isEmpty ? nil : parse(bytes[...])
    }
}

/// The contents of a short file in /proc, without the final newline. Nil if it cannot be read.
func readText(_ path: String, limit: Int = 4096) -> String? {
    let file = unsafe open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
    guard file >= 0 else { return nil }
    defer { close(file) }
    var bytes = unsafe [UInt8](unsafeUninitializedCapacity: limit) { buffer, count in
        count = unsafe max(0, read(file, buffer.baseAddress, limit))
    }
    guard !bytes.isEmpty else { return nil }
    if bytes.last == UInt8(ascii: "\n") { bytes.removeLast() }
    return String(decoding: bytes, as: UTF8.self)
}
