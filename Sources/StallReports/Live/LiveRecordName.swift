/// The name of a live record's file: `live-ULID.bin`, with the run's id.
struct LiveRecordName: Hashable, CustomStringConvertible {
    let run: ULID

    init(run: ULID) { self.run = run }

    /// Nil for any other name.
    init?(_ text: String) {
        guard text.hasPrefix("live-"), text.hasSuffix(".bin"), let run = ULID(String(text.dropFirst(5).dropLast(4)))
        else { return nil }
        self.run = run
        guard description == text else { return nil }
    }

    var description: String { "live-\(run).bin" }
}
