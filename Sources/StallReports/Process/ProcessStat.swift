/// Two fields of `/proc/PID/stat` (proc(5)).
struct ProcessStat: Hashable {
    /// Field 3: one letter.
    let state: Character
    /// Field 22: the process's start, in clock ticks since the kernel's.
    let startTicks: UInt64

    /// Nil when the process is gone, or hidden.
    init?(pid: Int32) {
        guard let text = readProcFile("/proc/\(pid)/stat") else { return nil }
        self.init(text)
    }

    /// The second field is the name in brackets, and may itself hold blanks and brackets: the fields begin after the last one.
    init?(_ text: String) {
        guard let end = text.lastIndex(of: ")") else { return nil }
        let fields = text[text.index(after: end)...].split(separator: " ")
        guard fields.count > 19, let state = fields[0].first, let ticks = UInt64(fields[19]) else { return nil }
        (self.state, startTicks) = (state, ticks)
    }
}
