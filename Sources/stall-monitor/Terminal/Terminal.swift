import Glibc
import StallReports
import Synchronization

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

/// The terminal in raw mode: keys arrive one by one without echo, and the previous screen is restored
/// at the end, also by `exit`. Signals must be turned into an exit.
enum RawTerminal {
    private struct State {
        var isEntered = false
        /// The settings before it was entered for the first time. Nil until then.
        var settings: termios?
    }

    private static let state = Mutex(State())

    /// Whether keys can be read: standard input may be redirected.
    static var hasKeys: Bool { isatty(STDIN_FILENO) == 1 }

    private static let enterScreen = "\u{1B}[?1049h\u{1B}[?25l\u{1B}[2J"
    private static let leaveScreen = "\u{1B}[?25h\u{1B}[?1049l"

    private static let exitHandler = atexit { RawTerminal.leave() }

    /// Ctrl-C remains a signal. Ctrl-\ does nothing, and Ctrl-Z is a key like others (``suspend()``), because the shell would get the terminal
    /// in raw mode.
    static func enter() throws(CommandFailure) {
        _ = exitHandler
        state.withLock { $0.isEntered = true }
        if hasKeys {
            var settings = try previousSettings()
            settings.c_lflag &= ~tcflag_t(ICANON | ECHO)
            unsafe withUnsafeMutableBytes(of: &settings.c_cc) { keys in
                // 0 disables the key (_POSIX_VDISABLE on Linux).
                for key in [VSUSP, VQUIT] { unsafe keys[Int(key)] = 0 }
                unsafe keys[Int(VMIN)] = 0
                unsafe keys[Int(VTIME)] = 0
            }
            _ = unsafe tcsetattr(STDIN_FILENO, TCSANOW, &settings)
        }
        try Output.write(enterScreen)
    }

    private static func previousSettings() throws(CommandFailure) -> termios {
        if let known = state.withLock({ $0.settings }) { return known }
        var settings = termios()
        guard unsafe tcgetattr(STDIN_FILENO, &settings) == 0 else {
            throw CommandFailure("the terminal's settings cannot be read: \(ReportError(.io, errorNumber: errno))")
        }
        let known = settings
        state.withLock { $0.settings = known }
        return known
    }

    /// Does what the terminal does at Ctrl-Z: stops this process and the others of its group, such as the script that runs it. Returns when it
    /// goes on, with the screen entered again. On the main thread only: libdispatch's threads block the signal.
    ///
    /// Where no shell could let it go on, the system does not stop it (setpgid(2), orphaned process groups).
    static func suspend() throws(CommandFailure) {
        leave()
        // Ignored here: this process would stop in kill(2), and again behind it.
        let before = signal(SIGTSTP, SIG_IGN)
        kill(0, SIGTSTP)
        signal(SIGTSTP, before)
        // For this thread itself, so that nothing is written to the shell's terminal before the stop.
        raise(SIGTSTP)
        try enter()
    }

    /// Restores the terminal. A second call does nothing.
    static func leave() {
        let known = state.withLock { state in
            defer { state.isEntered = false }
            return state
        }
        guard known.isEntered else { return }
        // If the terminal has gone (EIO), nothing needs to be restored.
        _ = Output.writeAll(Array(leaveScreen.utf8), to: STDOUT_FILENO)
        guard var settings = known.settings else { return }
        _ = unsafe tcsetattr(STDIN_FILENO, TCSANOW, &settings)
    }

    /// Returns what was typed, without waiting. Nil if the terminal has gone.
    static func read() -> [UInt8]? {
        var bytes = [UInt8](repeating: 0, count: 256)
        let count = unsafe bytes.withUnsafeMutableBytes { unsafe Glibc.read(STDIN_FILENO, $0.baseAddress, $0.count) }
        if count < 0 { return errno == EAGAIN || errno == EINTR ? [] : nil }
        // One that has gone is no terminal any more. At others, somebody else may have read the key.
        if count == 0 { return hasKeys ? [] : nil }
        return Array(bytes[..<count])
    }
}

/// A key that this command's screens use.
enum KeyPress: Hashable {
    case up, down, pageUp, pageDown, home, end, enter, escape
    /// Ctrl-Z.
    case suspend
    case character(Character)
}

/// Converts bytes from a terminal into keys. One read may contain many keys, and an incomplete one. Pure.
struct KeyDecoder {
    private var pending: [UInt8] = []

    /// No known sequence is longer.
    private static let longest = 8
    private static let escape: UInt8 = 0x1B

    /// Whether an incomplete sequence is pending; a lone Escape is one too.
    var isWaiting: Bool { !pending.isEmpty }

    /// Returns the completed keys.
    mutating func take(_ bytes: [UInt8]) -> [KeyPress] {
        var keys: [KeyPress] = []
        for byte in bytes {
            if !pending.isEmpty, byte == Self.escape { keys += settle() }
            pending.append(byte)
            guard Self.isComplete(pending) || pending.count >= Self.longest else { continue }
            if let key = Self.key(pending) { keys.append(key) }
            pending = []
        }
        return keys
    }

    /// Call after a pause in the input: a pending Escape was the Escape key.
    mutating func settle() -> [KeyPress] {
        defer { pending = [] }
        return pending == [Self.escape] ? [.escape] : []
    }

    /// A sequence begins with Escape and `[` or `O`, and ends with a letter or `~` (ECMA-48, 5.4).
    private static func isComplete(_ bytes: [UInt8]) -> Bool {
        guard bytes[0] == escape else { return true }
        switch bytes.count {
        case 1: return false
        case 2: return bytes[1] != UInt8(ascii: "[") && bytes[1] != UInt8(ascii: "O")
        default: return (0x40...0x7E).contains(bytes[bytes.count - 1])
        }
    }

    private static func key(_ bytes: [UInt8]) -> KeyPress? {
        guard bytes[0] == escape else { return plain(bytes[0]) }
        return switch String(decoding: bytes.dropFirst(2), as: UTF8.self) {
        case "A": .up
        case "B": .down
        case "5~": .pageUp
        case "6~": .pageDown
        case "H", "1~", "7~": .home
        case "F", "4~", "8~": .end
        default: nil
        }
    }

    private static func plain(_ byte: UInt8) -> KeyPress? {
        switch byte {
        case 0x0D, 0x0A: .enter
        case 0x7F, 0x08: .escape
        case 0x1A: .suspend
        case 0x20...0x7E: .character(Character(Unicode.Scalar(byte)))
        default: nil
        }
    }
}
