import StallExport
import StallReports

extension SampleDocument {
    /// Merged stacks for flame graphs, by thread. An asynchronous function is shown above the functions that await it, in place of
    /// the executor's frames.
    var merged: WeightedStacks {
        var merged = WeightedStacks(unit: .samples)
        for stack in stacks {
            let calls = shownFrames(of: stack).reversed().map(call)
            for sighting in stack.threads {
                merged.add(sighting.count, of: sighting.thread.numberAndName, calls, at: startedAt)
            }
        }
        return merged
    }

    /// `redis-server (4711)`.
    var subject: String { process.name.map { "\($0) (\(process.id))" } ?? "process \(process.id)" }

    /// Innermost first.
    private func shownFrames(of stack: Stack) -> [StallReport.Frame] {
        guard let async = stack.async else { return stack.frames }
        return stack.frames.prefix(async.from + 1) + async.frames
    }

    private func call(_ frame: StallReport.Frame) -> WeightedStacks.Call {
        let module = frame.module.map { modules[$0] }
        return WeightedStacks.Call(
            name: VisibleText.of(name(of: frame, in: module), limit: 500),
            module: module?.path,
            buildID: module?.buildID,
            isOwn: module != nil && module?.path == process.executable
        )
    }

    private func name(of frame: StallReport.Frame, in module: StallReport.Module?) -> String {
        if let name = frame.function ?? frame.symbol { return name }
        guard let module, let offset = frame.offset else { return "\(frame.address)" }
        return "\(module.path.split(separator: "/").last ?? "")+\(offset)"
    }
}
