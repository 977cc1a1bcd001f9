/// Removes operations from a script as long as it still fails.
struct Shrinker {
    let stillFails: (Options) -> Bool

    func shrink(_ options: inout Options) {
        while true {
            let before = options.script(0).operationCount
            for index in stride(from: before - 1, through: 0, by: -1) where index < options.script(0).operationCount {
                var candidate = options
                candidate.drops.append(index)
                if stillFails(candidate) { options = candidate }
            }
            if options.script(0).operationCount == before { return }
        }
    }
}

extension Script {
    /// Includes nested operations.
    var operationCount: Int {
        var count = 0
        _ = mapOperations { operations in
            count += operations.reduce(0) { $0 + $1.size }
            return operations
        }
        return count
    }

    /// The script without the operation of this number, counted over all
    /// lists in one order, an outer operation before those it contains.
    func removing(_ index: Int) -> Script {
        var left = index
        return mapOperations { operations in Operation.removing(&left, from: operations) }
    }

    private func mapOperations(_ change: ([Operation]) -> [Operation]) -> Script {
        var script = self
        script.thread = change(script.thread)
        for index in script.blocks.indices { script.blocks[index] = change(script.blocks[index]) }
        for item in script.items {
            for call in (script.acts[item] ?? [:]).keys.sorted() {
                let operations = script.acts[item]?[call] ?? []
                script.acts[item]?[call] = change(operations)
            }
        }
        return script
    }
}

extension Operation {
    fileprivate var size: Int {
        switch self {
        case .onOtherThread(let inner), .whenAsleep(let inner): 1 + inner.reduce(0) { $0 + $1.size }
        default: 1
        }
    }

    /// Removes the operation at which `left` reaches 0; `left` is -1 afterwards.
    fileprivate static func removing(_ left: inout Int, from operations: [Operation]) -> [Operation] {
        var result: [Operation] = []
        for operation in operations {
            if left == 0 {
                left = -1
                continue
            }
            if left > 0 { left -= 1 }
            switch operation {
            case .onOtherThread(let inner): result.append(.onOtherThread(removing(&left, from: inner)))
            case .whenAsleep(let inner): result.append(.whenAsleep(removing(&left, from: inner)))
            default: result.append(operation)
            }
        }
        return result
    }
}
