import StallDiagnosis

/// Whether a thread that does not move could move at all: what the kernel says of it in `/proc/self/task/TID/status` (proc(5)).
struct ThreadStanding: Hashable, Sendable {
    /// The letter: `R`, `S`, `D`, `T` stopped by a signal, `t` stopped by a tracer.
    var state: Character
    /// The tracer's process number; 0 for none.
    var tracer: Int32

    /// Nil when the thread is gone or /proc is not there. Any thread; one file.
    static func read(threadID: Int32) -> ThreadStanding? {
        readSmallFile("/proc/self/task/\(threadID)/status").flatMap(ThreadStanding.init(status:))
    }

    /// Parses the file's text.
    init?(status: String) {
        guard let state = Self.field("State", of: status)?.first else { return nil }
        self.state = state
        tracer = Self.field("TracerPid", of: status).flatMap { Int32($0) } ?? 0
    }

    private static func field(_ name: String, of status: String) -> Substring? {
        let line = status.split(separator: "\n").first { $0.hasPrefix(name + ":") }
        return line?.dropFirst(name.count + 1).drop { $0 == "\t" || $0 == " " }
    }
}
