import Glibc

func fetch() async -> Int {
    sleep(61)
    sink += 1
    return sink
}

func fetchLater() async -> Int {
    await Task.yield()
    sleep(62)
    sink += 1
    return sink
}

func fetchTwice() async -> Int {
    await Task.yield()
    sink += 1
    await Task.yield()
    sleep(63)
    sink += 1
    return sink
}

func order() async -> Int { await fetch() &+ sink }
func refund() async -> Int { await fetch() &- sink }
func orderLater() async -> Int { await fetchLater() &+ sink }
func orderTwice() async -> Int { await fetchTwice() &+ sink }

func generic<Value: Sendable>(_ value: Value) async -> Int {
    await Task.yield()
    sleep(64)
    sink += MemoryLayout<Value>.size
    return sink
}

actor Stock {
    var count = 3
    func take() -> Int {
        sleep(65)
        count -= 1
        return count
    }
    func takeLater() async -> Int {
        await Task.yield()
        sleep(66)
        count -= 1
        return count
    }
}

func retry(_ work: () async -> Int) async -> Int { await work() &+ sink }

func inClosure() async -> Int {
    await retry {
        await Task.yield()
        sleep(67)
        sink += 1
        return sink
    }
}

func inChild() async -> Int {
    async let value = fetchLater()
    return await value &+ sink
}

func inGroup() async -> Int {
    await withTaskGroup(of: Int.self) { group in
        group.addTask { await fetchLater() &+ 1 }
        return await group.next() ?? 0
    }
}

func deepAsync(_ depth: Int) async -> Int {
    guard depth > 0 else { return await fetchLater() &+ sink }
    return await deepAsync(depth - 1) &+ sink
}

protocol Remote: Sendable { func call() async -> Int }
struct Near: Remote {
    func call() async -> Int {
        await Task.yield()
        sleep(68)
        sink += 1
        return sink
    }
}
@inline(never) func anyRemote() -> any Remote { Near() }
func callRemote(_ remote: any Remote) async -> Int { await remote.call() &+ sink }
