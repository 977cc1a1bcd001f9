import Glibc

func describe<Value>(_ value: Value) -> Int {
    sleep(77)
    sink += MemoryLayout<Value>.size
    return sink
}

func store<Value: Hashable>(_ values: [Value]) -> Int {
    let set = Set(values)
    return describe(set) &+ set.count
}

struct Box<Element> {
    var element: Element
    func open() -> Int {
        sleep(78)
        sink += MemoryLayout<Element>.size
        return sink
    }
}

protocol Shape {
    func area() -> Int
}

extension Shape {
    func doubled() -> Int { area() &* 2 &+ sink }
}

struct Square: Shape {
    var side = 2
    func area() -> Int {
        sleep(79)
        sink += side
        return sink
    }
}

struct Circle: Shape {
    var radius = 2
    func area() -> Int {
        sleep(80)
        sink += radius
        return sink
    }
}

@inline(never) func anyShape(_ round: Bool) -> any Shape { round ? Circle() : Square() }
func measure(_ shape: any Shape) -> Int { shape.doubled() &+ sink }
func measureSome(_ shape: some Shape) -> Int { shape.area() &+ sink }

class Animal {
    func speak() -> Int { sink }
    final func greet() -> Int { speak() &+ sink }
}

final class Dog: Animal {
    override func speak() -> Int {
        sleep(81)
        sink += 1
        return sink
    }
}

final class Cat: Animal {
    override func speak() -> Int {
        sleep(82)
        sink += 2
        return sink
    }
}

@inline(never) func anyAnimal(_ barks: Bool) -> Animal { barks ? Dog() : Cat() }

// Equal bodies: the compiler may merge them.
struct Left { var value = 1; @inline(never) func wait() -> Int { stand() &+ value } }
struct Right { var value = 1; @inline(never) func wait() -> Int { stand() &+ value } }

/// A candidate for outlining: the fast path is inlined, the slow one is not.
func cached(_ key: Int?) -> Int {
    if let key { return key }
    sleep(83)
    sink += 1
    return sink
}
@inline(never) func askCache() -> Int { cached(sink > 100 ? 1 : nil) &+ sink }
