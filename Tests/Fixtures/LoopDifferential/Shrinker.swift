/// Makes a script that fails smaller for as long as it fails.
struct Shrinker {
    let stillFails: (Script) -> Bool

    func shrink(_ start: Script) -> Script {
        var script = start
        while true {
            let before = script.operationCount
            for index in stride(from: before - 1, through: 0, by: -1) where index < script.operationCount {
                let candidate = script.removing(index)
                if stillFails(candidate) { script = candidate }
            }
            if script.operationCount == before { return script }
        }
    }
}

extension Script {
    /// Operations inside others count too.
    var operationCount: Int {
        var count = 0
        _ = mapOperations { operations in
            count += operations.reduce(0) { $0 + $1.size }
            return operations
        }
        return count
    }

    /// Without the operation of a number, counted over all lists in one order, outer ones before what is in them.
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

    /// Removes the one that `left` counts down to; -1 once it is gone.
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
