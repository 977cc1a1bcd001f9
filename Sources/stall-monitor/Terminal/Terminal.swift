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
