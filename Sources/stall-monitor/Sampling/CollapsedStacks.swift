import StallReports

/// One line per thread and stack, as flame-graph tools read it: `thread;outermost;…;innermost count`. An asynchronous function is
/// called by those that await it: they stand there in place of the executor's frames.
struct CollapsedStacks {
    let document: SampleDocument

    var text: String {
        document.stacks.flatMap { stack in
            let calls = Self.calls(of: stack).reversed().map { Self.plain(name(of: $0)) }
            return stack.threads.map { sighting in
                ([Self.plain(sighting.thread.numberAndName)] + calls).joined(separator: ";")
                    + " \(sighting.count)\n"
            }
        }.joined()
    }

    /// Innermost first.
    private static func calls(of stack: SampleDocument.Stack) -> [StallReport.Frame] {
        guard let async = stack.async else { return stack.frames }
        return stack.frames.prefix(async.from + 1) + async.frames
    }

    private func name(of frame: StallReport.Frame) -> String {
        if let name = frame.function ?? frame.symbol { return name }
        guard let module = frame.module, let offset = frame.offset else { return "\(frame.address)" }
        return "\(document.modules[module].fileName)+\(offset)"
    }

    /// Without the characters that end a frame or a line.
    private static func plain(_ name: String) -> String {
        VisibleText.of(name.replacing(";", with: ":"), limit: 500).replacing("\n", with: " ")
    }
}

extension StallReport.Module {
    var fileName: String { path.split(separator: "/").last.map(String.init) ?? path }
}
