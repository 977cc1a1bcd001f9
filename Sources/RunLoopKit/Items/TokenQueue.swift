/// First in, first out, without moving what is left at each step.
struct TokenQueue: Sendable {
    private var tokens: [UInt64] = []
    private var head = 0

    var isEmpty: Bool { head == tokens.count }

    mutating func append(_ token: UInt64) { tokens.append(token) }

    mutating func removeAll() {
        tokens.removeAll(keepingCapacity: true)
        head = 0
    }

    mutating func popFirst() -> UInt64? {
        guard head < tokens.count else { return nil }
        defer {
            head += 1
            if head == tokens.count {
                removeAll()
            } else if head > 64, head > tokens.count / 2 {
                tokens.removeFirst(head)
                head = 0
            }
        }
        return tokens[head]
    }
}
