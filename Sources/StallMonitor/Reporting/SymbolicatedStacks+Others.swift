import StackCapture
import StallReports
import Symbolication

extension SymbolicatedStacks {
    /// Adds the stacks of the other threads. Equal ones are added once.
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

    /// Index of the module in the report. Adds it if it is new.
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
        self.init(group.stack, calls, [], threads[0], time)
        (role, count, async) = (.other, threads.count, nil)
        self.threads = threads.count > 1 ? threads : nil
    }
}
