import StackCapture
import StallReports
import Symbolication

extension SymbolicatedStacks {
    /// Adds what the other threads were at, equal stacks once.
    mutating func add(
        _ others: ThreadStacks,
        at time: Timestamp,
        name: ([ResolvableAddress]) -> Resolution,
        isOwn: (SymbolicatedFrame, LoadedModule?) -> Bool
    ) {
        let addresses = others.groups.flatMap(\.stack.frames).map {
            ResolvableAddress(address: $0.address, isReturnAddress: $0.found != .register)
        }
        let resolution = name(addresses)
        let places = resolution.modules.map { place(of: $0) }
        var names = resolution.frames[...]
        for group in others.groups {
            let own = names.prefix(group.stack.frames.count)
            names = names.dropFirst(own.count)
            let calls = zip(own, group.stack.frames).map { name, frame in
                StallReport.Frame.calls(name, found: frame.found) {
                    isOwn($0, $0.moduleIndex.map { resolution.modules[$0] })
                }
                .map { $0.inModules(places) }
            }
            stacks.append(StallReport.Stack(group, calls, time))
        }
        stacks += others.missing.map {
            StallReport.Stack(
                role: .other,
                thread: .init(id: $0.threadID, name: $0.name.isEmpty ? nil : $0.name),
                capturedAt: time,
                complete: false,
                error: $0.error.description
            )
        }
    }

    /// Its place among the report's modules, which it joins unless it is there.
    private mutating func place(of loaded: LoadedModule) -> Int {
        let module = StallReport.Module(
            path: loaded.path,
            buildID: loaded.buildID,
            loadBase: Address(UInt64(loaded.loadBase))
        )
        if let known = modules.firstIndex(of: module) { return known }
        modules.append(module)
        return modules.count - 1
    }
}

extension StallReport.Frame {
    fileprivate func inModules(_ places: [Int]) -> Self {
        var frame = self
        frame.module = module.map { places[$0] }
        return frame
    }
}

extension StallReport.Stack {
    fileprivate init(_ group: ThreadStacks.Group, _ calls: [[StallReport.Frame]], _ time: Timestamp) {
        let threads = group.threads.map {
            StallReport.Thread(id: $0.threadID, name: $0.name.isEmpty ? nil : $0.name)
        }
        self.init(
            role: .other,
            thread: threads[0],
            capturedAt: time,
            method: group.stack.method == .quiet ? .quiet : .signal,
            count: threads.count,
            complete: group.stack.isComplete,
            frames: Array(calls.joined()),
            leftOut: group.stack.leftOut.map { .init(after: calls.prefix($0.after).joined().count, count: $0.count) },
            error: group.stack.truncation?.sentence,
            threads: threads.count > 1 ? threads : nil
        )
    }
}
