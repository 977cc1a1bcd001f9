import Glibc
import StallReports
import Synchronization

/// The terminal of standard input and output while a screen is drawn on it: keys come one by one and unseen, and what was on the terminal
/// before comes back at the end. That also holds where the process leaves by `exit`; a signal must lead there.
enum RawTerminal {
    private struct State {
        var isEntered = false
        /// The settings before. Nil while they are not changed.
        var settings: termios?
    }

    private static let state = Mutex(State())

    /// Whether keys can be read: somebody may have given the command another input.
    static var hasKeys: Bool { isatty(STDIN_FILENO) == 1 }

    private static let enterScreen = "\u{1B}[?1049h\u{1B}[?25l\u{1B}[2J"
    private static let leaveScreen = "\u{1B}[?25h\u{1B}[?1049l"

    /// Ctrl-C remains a signal. Ctrl-Z and Ctrl-\ do nothing: the shell would be left with a terminal like this.
    static func enter() throws(CommandFailure) {
        atexit { RawTerminal.leave() }
        state.withLock { $0.isEntered = true }
        if hasKeys {
            var settings = termios()
            guard unsafe tcgetattr(STDIN_FILENO, &settings) == 0 else {
                throw CommandFailure("the terminal's settings cannot be read: \(ReportError(.io, errorNumber: errno))")
            }
            let known = settings
            state.withLock { $0.settings = known }
            settings.c_lflag &= ~tcflag_t(ICANON | ECHO)
            unsafe withUnsafeMutableBytes(of: &settings.c_cc) { keys in
                // None (_POSIX_VDISABLE is 0 on Linux).
                for key in [VSUSP, VQUIT] { unsafe keys[Int(key)] = 0 }
                unsafe keys[Int(VMIN)] = 0
                unsafe keys[Int(VTIME)] = 0
            }
            _ = unsafe tcsetattr(STDIN_FILENO, TCSANOW, &settings)
        }
        try Output.write(enterScreen)
    }

    /// Once; a second time does nothing.
    static func leave() {
        let known = state.withLock { state in
            defer { state = State() }
            return state
        }
        guard known.isEntered else { return }
        // A terminal that has gone (EIO) needs nothing any more.
        _ = Output.writeAll(Array(leaveScreen.utf8), to: STDOUT_FILENO)
        guard var settings = known.settings else { return }
        _ = unsafe tcsetattr(STDIN_FILENO, TCSANOW, &settings)
    }

    /// What was typed, without a wait. Nil when the terminal has gone.
    static func read() -> [UInt8]? {
        var bytes = [UInt8](repeating: 0, count: 256)
        let count = unsafe bytes.withUnsafeMutableBytes { unsafe Glibc.read(STDIN_FILENO, $0.baseAddress, $0.count) }
        if count < 0 { return errno == EAGAIN || errno == EINTR ? [] : nil }
        return Array(bytes[..<count])
    }
}
