import StallExport
import StallReports

extension SampleDocument {
    /// Merged stacks for flame graphs, by thread. An asynchronous function is shown above the functions that await it, in place of
    /// the executor's frames. Code of the executable is own.
    var merged: WeightedStacks {
        var merged = WeightedStacks(unit: .samples)
        for stack in stacks {
            var shown = reported(stack)
            for index in shown.frames.indices {
                let module = shown.frames[index].module.map { modules[$0].path }
                shown.frames[index].own = module != nil && module == process.executable
            }
            for sighting in stack.threads {
                merged.add(sighting.count, of: sighting.thread.numberAndName, shown, modules, at: startedAt)
            }
        }
        return merged
    }

    /// `redis-server (4711)`.
    var subject: String { process.name.map { "\($0) (\(process.id))" } ?? "process \(process.id)" }
}
