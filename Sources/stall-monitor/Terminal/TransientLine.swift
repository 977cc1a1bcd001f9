import Glibc

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
