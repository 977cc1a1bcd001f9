import Glibc

/// Whether to colour.
enum ColourChoice: String, CaseIterable {
    case auto, always, never
}

/// What standard output, or another descriptor, is connected to.
struct Terminal: Hashable {
    /// Columns to fit text into; nil where nothing needs to fit.
    var width: Int?
    /// Lines that are seen at once; nil for what is no terminal.
    var height: Int?
    var hasColours = false
    /// Whether what was written can be written over.
    var movesCursor = false

    static let plain = Terminal()

    /// As the process finds it. Call it before threads that change the environment.
    static func current(_ descriptor: Int32 = STDOUT_FILENO, colours: ColourChoice) -> Terminal {
        var terminal = current(descriptor)
        switch colours {
        case .auto: break
        case .always: terminal.hasColours = true
        case .never: terminal.hasColours = false
        }
        return terminal
    }

    /// With colours on a terminal only, and not where the environment forbids them.
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

/// The program that shows long text, as git calls it: $PAGER, or else less with -FRX where $LESS is not set.
struct Pager {
    private let command: String

    /// Nil where none is wanted: $PAGER is empty, or `cat`.
    static func fromEnvironment() -> Pager? {
        guard let value = unsafe getenv("PAGER") else { return Pager(command: "less") }
        let command = unsafe String(cString: value)
        return command.isEmpty || command == "cat" ? nil : Pager(command: command)
    }

    /// What a shell says of a command that it does not find, or may not run.
    private static let notRun: Set<Int32> = [126, 127]

    /// Returns when the reader has left.
    ///
    /// - Returns: false where the pager could not be run, and nothing was shown.
    func show(_ lines: some Sequence<StyledText>, on terminal: Terminal) throws(CommandFailure) -> Bool {
        unsafe setenv("LESS", "FRX", 0)
        unsafe setenv("LV", "-c", 0)
        guard let pipe = unsafe popen(command, "we") else { return false }
        // The pager's user quits it before its end, and presses Ctrl-C in it: neither is for us.
        let before = (signal(SIGPIPE, SIG_IGN), signal(SIGINT, SIG_IGN))
        for line in lines {
            let text = Array((terminal.show(line) + "\n").utf8)
            if unsafe fwrite(text, 1, text.count, pipe) < text.count { break }
        }
        let status = unsafe pclose(pipe)
        signal(SIGPIPE, before.0)
        signal(SIGINT, before.1)
        // As in wait(2): the low seven bits are a signal's, the next byte is the exit status.
        return !(status & 0x7f == 0 && Self.notRun.contains(status >> 8 & 0xff))
    }
}

/// What a variable of the environment is set to.
enum EnvironmentVariable {
    /// Nil also where it is set to nothing.
    static func value(_ name: String) -> String? {
        guard let value = unsafe getenv(name), unsafe value.pointee != 0 else { return nil }
        return unsafe String(cString: value)
    }
}
