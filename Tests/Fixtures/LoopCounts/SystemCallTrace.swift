import Glibc

/// The system calls that strace recorded for a scenario between its marks.
struct SystemCallTrace {
    /// Calls of the thread that made the marks.
    private(set) var own: [String: Int] = [:]
    /// Calls of the other threads.
    private(set) var others: [String: Int] = [:]
    private(set) var isComplete = false

    /// - Parameter lines: The output of `strace -f -o`: the thread's id, then the call. A call that was interrupted by another
    ///   thread's line has a second line, which does not count.
    init(lines: [Substring]) {
        var marker: Substring?
        for line in lines {
            let id = line.prefix { $0 != " " }
            let call = line.dropFirst(id.count).drop { $0 == " " }
            guard let name = SystemCallTrace.name(of: call) else { continue }
            if call.contains(Mark.begin) {
                marker = id
            } else if call.contains(Mark.end) {
                isComplete = true
                return
            } else if let marker {
                if id == marker { own[name, default: 0] += 1 } else { others[name, default: 0] += 1 }
            }
        }
    }

    private static func name(of call: Substring) -> String? {
        guard let first = call.first, first.isLetter, let end = call.firstIndex(of: "(") else { return nil }
        return String(call[..<end])
    }
}

extension SystemCallTrace {
    /// Runs a scenario of this program under strace; its own output is passed on. Nil if there is no complete trace.
    static func of(_ scenario: String) -> SystemCallTrace? {
        var file = Array("/tmp/loop-counts-XXXXXX".utf8CString)
        let descriptor = unsafe mkstemp(&file)
        guard descriptor >= 0 else { return nil }
        close(descriptor)
        defer { unsafe unlink(file) }
        let name = String(decoding: file.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        guard let program = unsafe realpath("/proc/self/exe", nil) else { return nil }
        defer { unsafe free(program) }
        let command = unsafe "strace -f -qq -s 64 -o \(name) '\(String(cString: program))' \(scenario)"
        guard unsafe system(command) == 0, let text = read(name) else { return nil }
        let trace = SystemCallTrace(lines: text.split(separator: "\n"))
        return trace.isComplete ? trace : nil
    }

    private static func read(_ name: String) -> String? {
        guard let file = unsafe fopen(name, "r") else { return nil }
        defer { unsafe fclose(file) }
        var bytes: [UInt8] = []
        var byte = unsafe getc(file)
        while byte != EOF {
            bytes.append(UInt8(truncatingIfNeeded: byte))
            byte = unsafe getc(file)
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
