import StallReports
import Testing

/// What a test reports about a stall, as an issue.
struct StallVerdict {
    let stall: StallReport
    let finding: StallFinding
    let limit: Duration
    let directory: String

    /// Called in the test's own task: Swift Testing uses the task to assign the issue to the test.
    ///
    /// - Parameter place: The location of the issue if the stalled function has no known source line.
    func record(at place: SourceLocation) {
        let location = culpritLocation ?? place
        guard finding == .machine else {
            Issue.record("\(text)", sourceLocation: location)
            return
        }
        #if compiler(>=6.3)
            Issue.record("\(text)", severity: .warning, sourceLocation: location)
        #else
            TestMonitor.say(text)
        #endif
    }

    var text: String {
        let length = DurationText(nanoseconds: stall.durationNs / 1_000_000 * 1_000_000)
        let thing = stall.watched.type == .taskPool ? "All workers of \(stall.watched.label)" : stall.watched.label
        var text = "\(thing) stood still for \(length), longer than \(DurationText(nanoseconds: limit.nanoseconds))"
        if let name = stall.culpritName { text += ", in \(name)" }
        text += ". \(stall.cause.summary)"
        switch finding {
        case .own: break
        case .machine:
            text += " That is the machine's fault: without its wait for a processor it is not too long. Not counted."
        case .unclear(let names) where names.count > 1:
            text += " Whose work it was cannot be told; these ran meanwhile: \(names.joined(separator: ", "))."
        case .unclear: text += " It fell into this test's time; neither its task nor its function was seen to stand."
        }
        return text + " Report: stall-monitor show \(stall.id) \(directory)"
    }

    private var culpritLocation: SourceLocation? {
        guard let culprit = stall.culprit, let file = culprit.file, let line = culprit.line, line > 0,
            let name = file.split(separator: "/").last
        else { return nil }
        // Swift Testing requires a module before the file's name.
        let module = culprit.module ?? "unknown"
        return SourceLocation(fileID: "\(module)/\(name)", filePath: file, line: line, column: 1)
    }
}
