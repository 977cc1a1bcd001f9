/// Generates scripts. The same seed gives the same script.
struct Generator {
    private var random: SplitMix64
    private var script = Script()
    /// The frequencies of operations differ between scripts, so that each kind of operation is frequent in some scripts.
    private var runsNested = 0
    private var usesThread = 0
    private var spends = 0

    private var dispatches = 0

    /// - Parameter main: Whether the script is for the main loop, and therefore includes work for the main queue.
    static func script(seed: UInt64, main: Bool = false) -> Script {
        var generator = Generator(random: SplitMix64(seed: seed))
        generator.dispatches = main ? generator.random.pick([5, 15]) : 0
        return generator.make()
    }

    private init(random: SplitMix64) { self.random = random }

    private mutating func make() -> Script {
        runsNested = random.pick([0, 5, 10, 20])
        usesThread = random.pick([0, 0, 5, 15])
        spends = random.pick([0, 3, 10])
        if random.chance(30) { script.recorded = random.pick([0x83, 0xA3, 0xC3, 0x87]) }
        for _ in 0..<random.number(0...4) { script.sources.append(.init(order: random.number(-1...1))) }
        for _ in 0..<random.number(0...4) {
            let interval = random.chance(50) ? 0 : random.number(1...8)
            script.timers.append(.init(order: random.number(-1...1), first: when(), interval: interval))
        }
        for _ in 0..<random.number(0...3) { script.observers.append(observer()) }
        script.blocks = Array(repeating: [], count: random.number(0...4))
        for index in script.blocks.indices { script.blocks[index] = operations(0...2, depth: 1) }
        for item in script.items { script.acts[item] = acts() }
        script.thread = thread()
        return script
    }

    private mutating func observer() -> Script.Observer {
        let all: [UInt32] = [1, 2, 4, 32, 64, 128]
        let activities = random.chance(30) ? 0xE7 : random.pick(all) | random.pick(all)
        return .init(order: random.number(-1...1), activities: activities, repeats: random.chance(75))
    }

    private mutating func acts() -> [Int: [Operation]] {
        var acts: [Int: [Operation]] = [:]
        for call in 0..<4 where random.chance(55) { acts[call] = operations(1...3, depth: 1) }
        return acts
    }

    /// First mostly adds the items; then runs with operations in between.
    private mutating func thread() -> [Operation] {
        var thread: [Operation] = []
        if random.chance(40) { thread.append(.addCommonMode(.mode(random.number(1...Place.modeCount - 1)))) }
        for item in script.items where random.chance(85) { thread.append(.add(item, place())) }
        for _ in 0..<random.number(1...4) {
            thread += operations(0...4, depth: 0)
            if random.chance(6) { thread += rarity() }
            if random.chance(usesThread) { thread.append(.whenAsleep(operations(1...3, depth: 2))) }
            thread.append(run())
        }
        return thread
    }

    /// Combinations that random choice hardly ever produces.
    private mutating func rarity() -> [Operation] {
        let mode = Place.mode(random.number(1...Place.modeCount - 1))
        switch random.number(0...2) {
        case 0 where !script.timers.isEmpty:
            let timer = Item.timer(random.number(0...script.timers.count - 1))
            return [.add(timer, .common), .remove(timer, .mode(0)), .ask(.contains(timer, .common))]
        case 1 where script.blocks.count > 1:
            script.blocks[0].insert(.addCommonMode(mode), at: 0)
            return [
                .enqueue(block: 0, [mode]), .enqueue(block: 1, [.common]), .run(mode, .poll, returnAfterSource: false),
            ]
        case 2 where script.observers.count > 1:
            let added = script.observers.indices.map { Operation.add(.observer($0), .common) }
            return added + [.addCommonMode(mode), .run(mode, .poll, returnAfterSource: false)]
        default: return []
        }
    }

    private mutating func operations(_ count: ClosedRange<Int>, depth: Int) -> [Operation] {
        (0..<random.number(count)).map { _ in operation(depth: depth) }
    }

    private mutating func operation(depth: Int) -> Operation {
        if depth == 1, random.chance(runsNested) { return run() }
        if depth < 2, random.chance(usesThread) {
            let operations = operations(1...3, depth: 2)
            return random.chance(50) ? .onOtherThread(operations) : .whenAsleep(operations)
        }
        if random.chance(spends) { return .spend(quarters: random.number(1...20)) }
        return random.chance(45) ? itemOperation() ?? loopOperation() : loopOperation()
    }

    private mutating func itemOperation() -> Operation? {
        guard !script.items.isEmpty else { return nil }
        let item = random.pick(script.items)
        switch random.number(0...9) {
        case 0...3: return .add(item, place())
        case 4...5: return .remove(item, place())
        case 6: return .invalidate(item)
        default: return .ask(question(about: item))
        }
    }

    private mutating func question(about item: Item) -> Question {
        switch (item, random.number(0...3)) {
        case (.source(let source), 0...1): .isSignalled(source)
        case (.timer(let timer), 0...1): .fireDate(timer: timer)
        case (_, 0...2): .contains(item, place())
        default: .isValid(item)
        }
    }

    private mutating func loopOperation() -> Operation {
        if dispatches > 0, random.chance(dispatches), !script.blocks.isEmpty {
            return .dispatch(block: random.number(0...script.blocks.count - 1))
        }
        return switch random.number(0...19) {
        case 0...5 where !script.sources.isEmpty: .signal(random.number(0...script.sources.count - 1))
        case 6...9 where !script.blocks.isEmpty: enqueue()
        case 10...12 where !script.timers.isEmpty: .move(timer: random.number(0...script.timers.count - 1), when())
        case 13...14: .wake
        case 15...16: .stop
        case 17 where random.chance(60): .addCommonMode(.mode(random.number(0...Place.modeCount - 1)))
        case 18: .ask(.earliestFireDate(.mode(random.number(0...Place.modeCount - 1))))
        case 19: .ask(random.chance(50) ? .currentMode : .isWaiting)
        default: .wake
        }
    }

    private mutating func enqueue() -> Operation {
        let places = (0..<random.pick([1, 1, 1, 2, 3])).map { _ in place() }
        return .enqueue(block: random.number(0...script.blocks.count - 1), places)
    }

    private mutating func run() -> Operation {
        if random.chance(6) { return .runForEver }
        let spans: [Span] = [
            .poll, .milliseconds(random.number(1...20)), .milliseconds(random.number(1...20)), .forEver,
        ]
        let place: Place =
            random.chance(1) ? .common : .mode(random.chance(65) ? 0 : random.number(1...Place.modeCount - 1))
        return .run(place, random.pick(spans), returnAfterSource: random.chance(40))
    }

    private mutating func place() -> Place {
        switch random.number(0...9) {
        case 0...4: .mode(0)
        case 5...7: .mode(random.number(1...Place.modeCount - 1))
        default: .common
        }
    }

    private mutating func when() -> When {
        switch random.number(0...9) {
        case 0...3: .now
        case 4...8: .soon(random.number(1...12))
        default: .never
        }
    }
}
