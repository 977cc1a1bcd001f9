import StackCapture
import Testing

@testable import ProcessWatch

@Suite("Which part of a stack is the loop, and what it called")
struct RestStackTests {
    private typealias Found = CapturedStack.Frame.Found

    /// Frames, innermost first: address and stack pointer.
    private func stack(_ frames: [(UInt, UInt)], _ found: [Found] = []) -> CapturedStack {
        var stack = CapturedStack(
            frames: frames.enumerated().map { index, frame in
                .init(
                    address: frame.0,
                    found: found.indices.contains(index) ? found[index] : index == 0 ? .register : .unwindTable
                )
            },
            method: .quiet,
            cost: .init(heldNanoseconds: 0, unwindNanoseconds: 0, bytesCopied: 0)
        )
        stack.stackPointers = frames.map(\.1)
        return stack
    }

    private let place = WaitPlace(call: 232, argument: 5, stackPointer: 0x1000, programCounter: 0x10)
    /// The wait, called by the loop's `poll`, which `run` called, which `main` called.
    private let atRest: [(UInt, UInt)] = [(0x10, 0x1000), (0x20, 0x1100), (0x30, 0x1200), (0x40, 0x1300)]

    private func rest() throws -> RestStack { try #require(RestStack(stack(atRest), waitingAt: place)) }

    @Test("A turn passes the return address of the wait's caller, or of the wait itself if the caller is a guess")
    func turn() throws {
        #expect(try rest().turn == .init(address: 0x20, stackPointer: 0x1100))
        let guessed = try #require(RestStack(stack(atRest, [.register, .scan]), waitingAt: place))
        #expect(guessed.turn == .init(address: 0x10, stackPointer: 0x1000))
        #expect(RestStack(waitingAt: place).turn == guessed.turn)
    }

    @Test(
        "A turn is hit where the wait returns; if it may wait elsewhere or on a list, in its caller"
    )
    func turnPlaces() throws {
        let rest = try rest()
        let (wait, caller) = (RestStack.Place(address: 0x10, stackPointer: 0x1000), rest.turn)
        let own = RestStack.TurnPlace(place: wait, descriptor: 5)
        #expect(rest.turnPlaces(on: 5, mayWaitElsewhere: false) == [own])
        #expect(rest.turnPlaces(on: 5, mayWaitElsewhere: true) == [own, .init(place: caller)])
        #expect(rest.turnPlaces(on: nil, mayWaitElsewhere: true) == [.init(place: caller)])
        #expect(RestStack(waitingAt: place).turnPlaces(on: 5, mayWaitElsewhere: true) == [own])
    }

    @Test("A stack that is not at the wait is ignored")
    func otherStack() {
        #expect(RestStack(stack([(0x11, 0x1000), (0x20, 0x1100)]), waitingAt: place) == nil)
        #expect(RestStack(stack([(0x10, 0x1008), (0x20, 0x1100)]), waitingAt: place) == nil)
        var untold = stack(atRest)
        untold.stackPointers = []
        #expect(RestStack(untold, waitingAt: place) == nil)
    }

    @Test("The innermost frame that has not moved is the loop's; what it called is the callout")
    func callout() throws {
        // `poll` has returned to `run`, which called 0x50, which called 0x60, which called 0x70.
        let now = stack([(0x99, 0xd00), (0x70, 0xe00), (0x60, 0xf00), (0x35, 0x1200), (0x40, 0x1300)])
        #expect(
            try rest().find(in: now)
                == .callout(
                    returns: [
                        .init(address: 0x35, stackPointer: 0x1200), .init(address: 0x60, stackPointer: 0xf00),
                        .init(address: 0x70, stackPointer: 0xe00),
                    ],
                    loopFrame: 3
                )
        )
    }

    @Test("At most as many returns are watched as there are registers, and none inside a guessed frame")
    func limits() throws {
        let deep: [(UInt, UInt)] = (0..<20).map { (0x100 + $0, 0x800 + $0 * 8) } + [(0x35, 0x1200), (0x40, 0x1300)]
        guard case .callout(let returns, let frame) = try rest().find(in: stack(deep)) else {
            Issue.record("no callout")
            return
        }
        #expect(returns.count == RestStack.returnLimit && frame == 20 && returns[0].address == 0x35)
        var found = [Found](repeating: .unwindTable, count: deep.count)
        found[19] = .scan
        guard case .callout(let fewer, _) = try rest().find(in: stack(deep, found)) else {
            Issue.record("no callout")
            return
        }
        #expect(fewer.map(\.address) == [0x35])
    }

    @Test("Between two callouts it is in the loop; entering or leaving the wait it is in the wait")
    func inLoop() throws {
        let rest = try rest()
        #expect(rest.find(in: stack([(0x37, 0x1200), (0x40, 0x1300)])) == .inLoop)
        #expect(rest.find(in: stack([(0x12, 0x1000), (0x20, 0x1100), (0x30, 0x1200), (0x40, 0x1300)])) == .inWait)
    }

    @Test("A stack with no common frame, or without stack pointers, gives no answer")
    func unknown() throws {
        let rest = try rest()
        #expect(rest.find(in: stack([(0x99, 0x200), (0x98, 0x300)])) == .unknown)
        #expect(rest.find(in: stack([(0x99, 0x200), (0x40, 0x1308)])) == .unknown)
        var untold = stack([(0x99, 0xd00), (0x40, 0x1300)])
        untold.stackPointers = []
        #expect(rest.find(in: untold) == .unknown)
        #expect(RestStack(waitingAt: place).find(in: stack([(0x99, 0xd00), (0x40, 0x1300)])) == .unknown)
    }

    @Test("Of a recursive callout the outermost frame is the loop's")
    func recursion() throws {
        let now = stack([(0x99, 0xd00), (0x35, 0xe00), (0x35, 0xf00), (0x35, 0x1200), (0x40, 0x1300)])
        #expect(try rest().find(in: now).loopFrame == 3)
    }
}
