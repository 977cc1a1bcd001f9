import Glibc

indirect enum Tree {
    case leaf
    case node(Tree)

    static func deep(_ depth: Int) -> Tree { depth == 0 ? .leaf : .node(.deep(depth - 1)) }
}

@inline(never) func walk(_ tree: Tree) -> Int {
    switch tree {
    case .leaf:
        sleep(102)
        sink += 1
        return sink
    case .node(let next): return walk(next) &+ sink
    }
}

@inline(never) func even(_ number: Int) -> Int {
    guard number > 0 else {
        sleep(103)
        sink += 1
        return sink
    }
    return odd(number - 1) &+ sink
}

@inline(never) func odd(_ number: Int) -> Int {
    guard number > 0 else {
        sleep(104)
        sink += 2
        return sink
    }
    return even(number - 1) &- sink
}

@inline(never) func walkOrder() -> Int { walk(.deep(sink + 3)) &+ sink }
@inline(never) func walkDeepOrder() -> Int { walk(.deep(sink + 40)) &+ sink }
@inline(never) func start(_ depth: Int) -> Int { walk(.deep(depth)) &+ sink }
@inline(never) func parity(_ number: Int) -> Int { even(number) &+ sink }
