#if Command
    import Glibc

    /// What standard output is connected to.
    struct Terminal: Hashable {
        /// Columns to fit text into; nil where nothing needs to fit.
        var width: Int?
        var hasColours: Bool

        static let plain = Terminal(width: nil, hasColours: false)

        /// As the process finds it. Call it before threads that change the environment.
        static func current() -> Terminal {
            guard isatty(STDOUT_FILENO) == 1 else { return .plain }
            let noColour = environment("NO_COLOR") != nil || environment("TERM") == "dumb"
            return Terminal(width: windowWidth(), hasColours: !noColour)
        }

        func show(_ text: StyledText) -> String { hasColours ? text.coloured : text.plain }

        private static func windowWidth() -> Int {
            var size = winsize()
            guard unsafe ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 else { return 80 }
            return Int(size.ws_col)
        }

        /// Nil when unset or empty.
        private static func environment(_ name: String) -> String? {
            guard let value = unsafe getenv(name) else { return nil }
            let text = unsafe String(cString: value)
            return text.isEmpty ? nil : text
        }
    }
#endif
