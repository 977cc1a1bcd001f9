import Glibc

/// Prevents tail calls, and the removal of results.
nonisolated(unsafe) var sink = 0

@inline(never) func stand() -> Int {
    sleep(84)
    sink += 1
    return sink
}

struct Cart {
    var items = [3, 1, 2]

    func total() -> Int { items.reduce(0, +) + lookUpPrice() }
    func discounted() -> Int { items.count + applyDiscount() }

    private func lookUpPrice() -> Int {
        sleep(85)
        sink += items.count
        return sink
    }

    private func applyDiscount() -> Int {
        sleep(86)
        sink += items.count
        return sink
    }

    func twoPlaces(_ first: Bool) -> Int {
        if first {
            sleep(87)
            sink += 1
        }
        sink += 3
        if !first {
            sleep(88)
            sink += 2
        }
        return sink
    }

    func eitherWay(_ computes: Bool) -> Int {
        guard computes else {
            sleep(89)
            sink += 1
            return sink
        }
        let end = time(nil) + 60
        while time(nil) < end { sink = sink &* 31 &+ items.count }
        return sink
    }
}

extension Cart {
    func handleOrder() -> Int { total() &+ sink }
    func handleRefund() -> Int { total() &* 3 }
    func handleOffer() -> Int { discounted() &+ sink }
}

// Overloads: the same name, different types.
func load(_ id: Int) -> Int {
    sleep(90)
    sink += id
    return sink
}

func load(_ name: String) -> Int {
    sleep(91)
    sink += name.utf8.count
    return sink
}

// The entry points, the outermost frames.
@inline(never) func entryA(_ work: () -> Int) -> Int { work() &+ sink }
@inline(never) func entryB(_ work: () -> Int) -> Int { work() &- sink }

@inline(never) func stage1(_ far: Bool) -> Int { stage2(far) &+ sink }
@inline(never) func stage2(_ far: Bool) -> Int { stage3(far) &+ sink }
@inline(never) func stage3(_ far: Bool) -> Int { stage4(far) &+ sink }
@inline(never) func stage4(_ far: Bool) -> Int { Cart().handleOrder() &+ sink }
@inline(never) func longWayA() -> Int { stage1(true) &+ 1 &+ sink }
@inline(never) func longWayB() -> Int { stage1(true) &+ 2 &+ sink }

/// Inlined into each caller, with the caller's context.
struct Page {
    var rows = 3
    var rendered: Int {
        sleep(92)
        sink += rows
        return sink
    }

    subscript(index: Int) -> Int {
        sleep(93)
        sink += index
        return sink
    }

    init() {}
    init(slowly: Bool) {
        sleep(94)
        sink += 1
        rows = sink
    }

    static let shared: Int = {
        sleep(95)
        sink += 1
        return sink
    }()

    static func < (left: Page, right: Page) -> Bool {
        sleep(96)
        sink += left.rows
        return sink > 3
    }
}

func slowDefault() -> Int {
    sleep(97)
    sink += 1
    return sink
}

@inline(never) func withDefault(_ value: Int = slowDefault()) -> Int { value &+ sink }

func mayFail(_ fails: Bool) throws -> Int {
    sleep(98)
    sink += 1
    if fails { throw CancellationError() }
    return sink
}

func deferring() -> Int {
    defer {
        sleep(99)
        sink += 1
    }
    return sink
}

func withLocal(_ first: Bool) -> Int {
    func one() -> Int {
        sleep(100)
        sink += 1
        return sink
    }
    func two() -> Int {
        sleep(101)
        sink += 2
        return sink
    }
    return first ? one() &+ sink : two() &- sink
}
