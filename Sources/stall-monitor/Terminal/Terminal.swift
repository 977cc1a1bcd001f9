#if Command
    import Glibc

    /// What standard output, or another descriptor, is connected to.
    struct Terminal: Hashable {
        /// Columns to fit text into; nil where nothing needs to fit.
        var width: Int?
        var hasColours: Bool

        static let plain = Terminal(width: nil, hasColours: false)

        /// As the process finds it. Call it before threads that change the environment.
        static func current(_ descriptor: Int32 = STDOUT_FILENO) -> Terminal {
            guard isatty(descriptor) == 1 else { return .plain }
            let noColour = environment("NO_COLOR") != nil || environment("TERM") == "dumb"
            return Terminal(width: windowWidth(descriptor), hasColours: !noColour)
        }

        func show(_ text: StyledText) -> String { hasColours ? text.coloured : text.plain }

        private static func windowWidth(_ descriptor: Int32) -> Int {
            var size = winsize()
            guard unsafe ioctl(descriptor, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 else { return 80 }
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
