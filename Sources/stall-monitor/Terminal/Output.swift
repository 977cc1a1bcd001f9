import Glibc
import StallReports

/// Standard output and error, unbuffered, whole records at a time.
enum Output {
    /// Data. A reader that has gone (`| head`) ends the process quietly, as SIGPIPE does where it is not ignored.
    static func write(_ text: String) throws(CommandFailure) { try write(Array(text.utf8)) }

    /// Data of any kind.
    static func write(_ bytes: [UInt8]) throws(CommandFailure) {
        switch writeAll(bytes, to: STDOUT_FILENO) {
        case 0: return
        case EPIPE: exit(128 + SIGPIPE)
        case let number:
            throw CommandFailure("cannot write to standard output: \(ReportError(.io, errorNumber: number))")
        }
    }

    /// Some lines at a time, however many there are.
    static func write(_ lines: some Sequence<StyledText>, on terminal: Terminal) throws(CommandFailure) {
        var text = ""
        for line in lines {
            text += terminal.show(line) + "\n"
            guard text.utf8.count >= 1 << 16 else { continue }
            try write(text)
            text = ""
        }
        try write(text)
    }

    /// Everything that is not data.
    static func note(_ text: String) {
        let width = Terminal.current(STDERR_FILENO).width
        error(noteLines(text, width: width).map { $0.plain + "\n" }.joined())
    }

    /// A note as it stands on a terminal.
    static func noteLines(_ text: String, width: Int?) -> [StyledText] {
        StyledText("stall-monitor: \(text)", limit: 2015).wrapped(to: width, hanging: 4)
    }

    /// Data that a person reads, one thing a line.
    static func writeLine(_ text: String) throws(CommandFailure) {
        let terminal = Terminal.current()
        try write(dataLines(text, width: terminal.width), on: terminal)
    }

    /// Such a line as it stands on a terminal.
    static func dataLines(_ text: String, width: Int?) -> [StyledText] {
        StyledText(text, limit: .max).wrapped(to: width, hanging: 4)
    }

    /// Whole lines that stand where data cannot.
    static func error(_ text: String) { _ = writeAll(Array(text.utf8), to: STDERR_FILENO) }

    static func note(_ error: ReportError) { note(CommandFailure(error).message) }

    /// Zero, or the errno of the write that failed.
    static func writeAll(_ bytes: [UInt8], to descriptor: Int32) -> Int32 {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = unsafe rest.withUnsafeBytes { unsafe Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count >= 0 {
                rest = rest.dropFirst(count)
            } else if errno == EAGAIN || errno == EWOULDBLOCK {
                waitForRoom(descriptor)
            } else if errno != EINTR {
                return errno
            }
        }
        return 0
    }

    /// Somebody who shares the pipe or terminal has made it non-blocking. Returns also when the reader has gone, or at a signal: the next
    /// write tells.
    private static func waitForRoom(_ descriptor: Int32) {
        var wanted = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        _ = unsafe poll(&wanted, 1, -1)
    }
}

/// One line on standard error that is written over, where that is a terminal; nothing elsewhere.
struct TransientLine {
    private let terminal = Terminal.current(STDERR_FILENO)
    private var isShown = false

    mutating func show(_ text: StyledText) {
        guard let width = terminal.width, terminal.movesCursor else { return }
        put(terminal.show(text.truncated(to: width - 1)))
        isShown = true
    }

    /// To be called before anything else is written to the terminal.
    mutating func clear() {
        guard isShown else { return }
        put("")
        isShown = false
    }

    private func put(_ text: String) {
        var line = "\r\u{1B}[K" + text
        line.withUTF8 { unsafe _ = write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}

/// Why a subcommand could not do it: one line for standard error, and exit code 1.
struct CommandFailure: Error, Hashable, CustomStringConvertible {
    let message: String

    init(_ message: String) { self.message = VisibleText.of(message, limit: 2000) }

    /// A long path is cut, so that the reason behind it is seen.
    init(_ error: ReportError) {
        self.init((error.path.map { VisibleText.of($0, limit: 500) + ": " } ?? "") + error.description)
    }

    /// Does something with a report directory; its error becomes a line for a person.
    static func wrapping<Result: ~Copyable>(
        _ work: () throws(ReportError) -> Result
    ) throws(CommandFailure) -> Result {
        do throws(ReportError) {
            return try work()
        } catch {
            throw CommandFailure(error)
        }
    }

    var description: String { message }
}

/// A document's JSON as it can be sent to a terminal: characters that one would obey or hide are written as JSON's own
/// escapes, so a program reads the same values.
enum JSONText {
    /// One line, without a line feed.
    static func of(_ document: some JSONDocument) throws(ReportError) -> String {
        escaped(String(decoding: try document.json().dropLast(), as: UTF8.self))
    }

    /// In valid JSON such characters stand only inside strings, where an escape means the same.
    static func escaped(_ json: String) -> String {
        var text = ""
        for scalar in json.unicodeScalars {
            if scalar.isASCII && scalar != "\u{7F}" || VisibleText.of(String(scalar)) == String(scalar) {
                text.unicodeScalars.append(scalar)
            } else {
                for unit in String(scalar).utf16 {
                    let digits = String(unit, radix: 16)
                    text += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
                }
            }
        }
        return text
    }
}
