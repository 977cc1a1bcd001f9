import Glibc
import StallReports

/// Standard output and standard error. Unbuffered; whole records are written at once.
enum Output {
    /// Takes the place of a standard stream that the parent has closed (`>&-`). Otherwise the next file that is opened would get its number,
    /// and what is written for people would go into it. Writing to it fails as before. Call it before anything is opened.
    static func reserveStandardStreams() {
        for descriptor in STDIN_FILENO...STDERR_FILENO where fcntl(descriptor, F_GETFD) < 0 {
            // The lowest free number, which is this one. Opened for the other direction.
            unsafe _ = open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY)
        }
    }

    /// Writes data. If the reader has closed the pipe (`| head`), the process ends silently, as if by SIGPIPE.
    static func write(_ text: String) throws(CommandFailure) { try write(Array(text.utf8)) }

    static func write(_ bytes: [UInt8]) throws(CommandFailure) {
        switch writeAll(bytes, to: STDOUT_FILENO) {
        case 0: return
        case EPIPE: exit(128 + SIGPIPE)
        case let number:
            throw CommandFailure("cannot write to standard output: \(OutputFile.reason(number))")
        }
    }

    /// Writes lines in chunks, however many there are.
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

    /// Writes a value as one line of JSON.
    static func writeJSON(_ value: some Encodable) throws { try write(JSONText.of(value) + "\n") }

    /// Writes a message, which is anything that is not data.
    static func note(_ text: String) {
        let width = Terminal.current(STDERR_FILENO).width
        error(noteLines(text, width: width).map { $0.plain + "\n" }.joined())
    }

    /// A note wrapped for a terminal.
    static func noteLines(_ text: String, width: Int?) -> [StyledText] {
        StyledText("stall-monitor: \(text)", limit: 2015).wrapped(to: width, hanging: 4)
    }

    /// Writes one line of data for people.
    static func writeLine(_ text: String) throws(CommandFailure) {
        let terminal = Terminal.current()
        try write(dataLines(text, width: terminal.width), on: terminal)
    }

    /// A line of data, wrapped for a terminal.
    static func dataLines(_ text: String, width: Int?) -> [StyledText] {
        StyledText(text, limit: .max).wrapped(to: width, hanging: 4)
    }

    /// Writes whole lines to standard error.
    static func error(_ text: String) { _ = writeAll(Array(text.utf8), to: STDERR_FILENO) }

    static func note(_ error: ReportError) { note(CommandFailure(error).message) }

    /// A directory may have a million files that cannot be read, mostly for one reason.
    private static let mostErrors = 10

    /// Writes a message for each, and for many how many there are.
    static func note(_ errors: [ReportError]) {
        let shown = errors.count > mostErrors + 1 ? mostErrors : errors.count
        errors.prefix(shown).forEach { note($0) }
        let rest = errors[shown...]
        guard !rest.isEmpty else { return }
        let isOneReason = errors.allSatisfy {
            ($0.code, $0.detail, $0.errorNumber) == (errors[0].code, errors[0].detail, errors[0].errorNumber)
        }
        let like = isOneReason ? ", for the same reason" : ""
        note("and \(rest.count) more files or directories cannot be read\(like)")
    }

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

    /// Waits until the descriptor is writable: another process that shares the pipe or terminal may have made it non-blocking.
    /// Also returns if the reader has closed the pipe or a signal arrives; the next write detects that.
    private static func waitForRoom(_ descriptor: Int32) {
        var wanted = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        _ = unsafe poll(&wanted, 1, -1)
    }
}

/// A status line on standard error that is overwritten in place. Shown on terminals only.
struct TransientLine {
    private let terminal = Terminal.current(STDERR_FILENO)
    private var isShown = false

    mutating func show(_ text: StyledText) {
        guard let width = terminal.width, terminal.movesCursor else { return }
        put(terminal.show(text.truncated(to: width - 1)))
        isShown = true
    }

    /// Call this before writing anything else to the terminal.
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

/// Why a subcommand failed: one line on standard error, and exit code 1.
struct CommandFailure: Error, Hashable, CustomStringConvertible {
    let message: String

    init(_ message: String) { self.message = VisibleText.of(message, limit: 2000) }

    /// A sentence, and below it a line for each of what it is about.
    init(_ sentence: String, _ lines: [String]) {
        message = ([sentence] + lines).map { VisibleText.of($0, limit: 500) }.joined(separator: "\n  ")
    }

    /// A long path is cut so that the reason stays visible.
    init(_ error: ReportError) {
        if error.code == .notADirectory, let path = error.path, ReportFileName(fileName(ofPath: path)) != nil,
            let folder = OpenDirectory.parent(of: path)
        {
            self.init(
                "\(VisibleText.of(path, limit: 500)): a directory is expected, and this is a file in one; give \(folder)"
            )
            return
        }
        let isDefault = error.code == .missingDirectory && error.path == "./stall-reports"
        self.init(
            (error.path.map { VisibleText.of($0, limit: 500) + ": " } ?? "") + error.description
                + (isDefault ? "; otherwise give the directory, or set $STALL_MONITOR_DIRECTORY" : "")
        )
    }

    var description: String { message }
}

/// JSON that is safe on a terminal: control and invisible characters are written as JSON
/// escapes, so that programs read the same values.
enum JSONText {
    /// One line, without a newline at its end.
    static func of(_ value: some Encodable) throws(ReportError) -> String {
        escaped(String(decoding: try ReportJSON.encode(value).dropLast(), as: UTF8.self))
    }

    /// In valid JSON such characters occur only in strings, where an escape means the same.
    static func escaped(_ json: String) -> String {
        // Most reports, and an export may have a million.
        guard json.utf8.contains(where: { $0 >= 0x7F }) else { return json }
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
