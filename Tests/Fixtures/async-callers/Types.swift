protocol Handler: Sendable {
    func handle(_ number: Int) async throws -> Int
}

extension Handler {
    @inline(never)
    func handleTwice(_ number: Int) async throws -> Int {
        let first = try await handle(here("Handler.handleTwice(_:)", with: number))
        return await breathe(first)
    }
}

struct PlainHandler: Handler {
    var offset: Int
    @inline(never)
    func handle(_ number: Int) async throws -> Int {
        await breathe(offset)
        return standStill(number)
    }
}

struct BoxedHandler<Value: Hashable & Sendable>: Handler {
    var value: Value
    @inline(never)
    func handle(_ number: Int) async throws -> Int {
        let hash = value.hashValue
        let result = await leaf(here("BoxedHandler.handle(_:)", with: number))
        return result ^ hash
    }
}

@inline(never) func handlers(_ number: Int) -> [any Handler] {
    [PlainHandler(offset: number), BoxedHandler(value: "x\(number)"), BoxedHandler(value: [number])]
}

@inline(never)
func witness(_ number: Int) async -> Int {
    let handler = handlers(number)[0]
    return (try? await handler.handle(here("witness(_:)", with: number))) ?? 0
}

@inline(never)
func route<Some: Handler>(_ handler: Some, _ number: Int) async throws -> Int {
    try await handler.handle(here("route(_:_:)", with: number)) &+ 1
}

@inline(never)
func genericWitness(_ number: Int) async -> Int {
    (try? await route(BoxedHandler(value: ["k": number]), here("genericWitness(_:)", with: number))) ?? 0
}

@inline(never)
func protocolExtension(_ number: Int) async -> Int {
    let handler = handlers(number)[1]
    return (try? await handler.handleTwice(here("protocolExtension(_:)", with: number))) ?? 0
}

class Base {
    func work(_ number: Int) async -> Int { number }
}

final class Derived: Base {
    @inline(never)
    override func work(_ number: Int) async -> Int {
        let value = await breathe(number)
        return standStill(value) &+ (await super.work(number))
    }
}

@inline(never) func makeBase(_ number: Int) -> Base { number >= 0 ? Derived() : Base() }

@inline(never)
func classOverride(_ number: Int) async -> Int {
    await makeBase(number).work(here("classOverride(_:)", with: number))
}

struct Store {
    var base: Int
    var total: Int {
        @inline(never) get async {
            await breathe(base)
            return await leaf(here("Store.total.getter"))
        }
    }
    subscript(number: Int) -> Int {
        @inline(never) get async throws {
            await breathe(base)
            return standStill(number)
        }
    }
    @inline(never)
    static func load(_ number: Int) async -> Store {
        await breathe()
        return Store(base: standStill(number))
    }
    @inline(never)
    func scaled(_ number: Int) async -> Int {
        let value = await breathe(number)
        return standStill(value) &* base
    }
}

@inline(never)
func getter(_ number: Int) async -> Int {
    let store = Store(base: here("getter(_:)", linesOn: 1))
    return await store.total &+ number
}

@inline(never)
func subscripting(_ number: Int) async -> Int {
    let store = Store(base: number)
    return (try? await store[here("subscripting(_:)", with: number)]) ?? 0
}

@inline(never)
func staticMethod(_ number: Int) async -> Int {
    await Store.load(here("staticMethod(_:)", with: number)).base
}

@inline(never)
func methodValue(_ number: Int) async -> Int {
    let scaled = Store(base: number).scaled
    let offset = here("methodValue(_:)", linesOn: 1)
    return await call(scaled) &+ offset
}

struct Opened: Sendable {
    var number: Int
    @inline(never)
    init(_ number: Int) async {
        await breathe()
        self.number = await leaf(here("Opened.init(_:)", with: number))
    }
}

final class Connection: Sendable {
    let number: Int
    @inline(never)
    init(checking number: Int) async throws {
        let value = await breathe(number)
        guard standStill(value) != 0 else { throw Failure() }
        self.number = value
    }
}

@inline(never)
func initialiser(_ number: Int) async -> Int {
    await Opened(here("initialiser(_:)", with: number)).number
}

@inline(never)
func throwingInitialiser(_ number: Int) async -> Int {
    let connection = try? await Connection(checking: here("throwingInitialiser(_:)", with: number))
    return connection?.number ?? 0
}

indirect enum Tree: Sendable {
    case leaf(Int)
    case node(Tree, Tree)

    @inline(never)
    func sum() async -> Int {
        await breathe()
        switch self {
        case .leaf(let number): return standStill(number)
        case .node(let left, let right):
            let offset = here("Tree.sum()", linesOn: 1)
            return await left.sum() &+ (await right.sum()) &+ offset
        }
    }
}

@inline(never)
func enumMethod(_ number: Int) async -> Int {
    let tree = Tree.node(.node(.leaf(here("enumMethod(_:)", linesOn: 1)), .leaf(2)), .leaf(3))
    return await tree.sum()
}

struct Token: ~Copyable {
    var number: Int
    @inline(never)
    consuming func spend(_ more: Int) async -> Int {
        let value = await breathe(number)
        return standStill(value) &+ more
    }
}

@inline(never)
func noncopyable(_ number: Int) async -> Int {
    let token = Token(number: number)
    return await token.spend(here("noncopyable(_:)", with: number))
}

@inline(never)
func all<each Value: Sendable>(_ values: repeat each Value, number: Int) async -> (repeat each Value) {
    await breathe(number)
    standStill(number)
    return (repeat each values)
}

@inline(never)
func parameterPack(_ number: Int) async -> Int {
    let result = await all(number, "text", [number], number: here("parameterPack(_:)", with: number))
    return result.0 &+ result.1.count
}
