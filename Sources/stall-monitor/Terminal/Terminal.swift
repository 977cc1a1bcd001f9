import Glibc

/// Whether to colour.
enum ColourChoice: String, CaseIterable {
    case auto, always, never
}

/// What standard output, or another descriptor, is connected to.
struct Terminal: Hashable {
    /// Columns to fit text into; nil for no limit.
    var width: Int?
    /// Visible lines; nil if this is not a terminal.
    var height: Int?
    var hasColours = false
    /// Whether the cursor can be moved.
    var movesCursor = false

    static let plain = Terminal()

    /// The current state. Call it before other threads change the environment.
    static func current(_ descriptor: Int32 = STDOUT_FILENO, colours: ColourChoice) -> Terminal {
        var terminal = current(descriptor)
        switch colours {
        case .auto: break
        case .always: terminal.hasColours = true
        case .never: terminal.hasColours = false
        }
        return terminal
    }

    /// With colours on terminals only, unless the environment forbids them.
    static func current(_ descriptor: Int32 = STDOUT_FILENO) -> Terminal {
        guard isatty(descriptor) == 1 else { return .plain }
        let isDumb = EnvironmentVariable.value("TERM") == "dumb"
        let (columns, lines) = windowSize(descriptor)
        return Terminal(
            width: columns,
            height: lines,
            hasColours: EnvironmentVariable.value("NO_COLOR") == nil && !isDumb,
            movesCursor: !isDumb
        )
    }

    func show(_ text: StyledText) -> String { hasColours ? text.coloured : text.plain }

    private static func windowSize(_ descriptor: Int32) -> (columns: Int, lines: Int) {
        var size = winsize()
        _ = unsafe ioctl(descriptor, UInt(TIOCGWINSZ), &size)
        return (size.ws_col > 0 ? Int(size.ws_col) : 80, size.ws_row > 0 ? Int(size.ws_row) : 24)
    }
}

/// The pager. It is chosen as in git: $PAGER, otherwise `less`, with -FRX unless $LESS is set.
struct Pager {
    private let command: String

    /// Nil if $PAGER is empty or `cat`.
    static func fromEnvironment() -> Pager? {
        guard let value = unsafe getenv("PAGER") else { return Pager(command: "less") }
        let command = unsafe String(cString: value)
        return command.isEmpty || command == "cat" ? nil : Pager(command: command)
    }

    /// A shell's exit codes for a command that is missing or not executable.
    private static let notRun: Set<Int32> = [126, 127]

    /// Returns when the pager has ended.
    ///
    /// - Returns: False if the pager could not be run.
    func show(_ lines: some Sequence<StyledText>, on terminal: Terminal) throws(CommandFailure) -> Bool {
        unsafe setenv("LESS", "FRX", 0)
        unsafe setenv("LV", "-c", 0)
        guard let pipe = unsafe popen(command, "we") else { return false }
        // Quitting the pager early and Ctrl-C in it must not end this process.
        let before = (signal(SIGPIPE, SIG_IGN), signal(SIGINT, SIG_IGN))
        for line in lines {
            let text = Array((terminal.show(line) + "\n").utf8)
            if unsafe fwrite(text, 1, text.count, pipe) < text.count { break }
        }
        let status = unsafe pclose(pipe)
        signal(SIGPIPE, before.0)
        signal(SIGINT, before.1)
        // As in wait(2): the low seven bits are the signal, the next byte is the exit status.
        return !(status & 0x7f == 0 && Self.notRun.contains(status >> 8 & 0xff))
    }
}

enum EnvironmentVariable {
    /// The value. Nil if the variable is missing or empty.
    static func value(_ name: String) -> String? {
        guard let value = unsafe getenv(name), unsafe value.pointee != 0 else { return nil }
        return unsafe String(cString: value)
    }
}
