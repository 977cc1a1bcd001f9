import Glibc

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
