import RunLoopKit
import StackCapture
import StallReports
import Symbolication
import TestSupport

@testable import StallMonitor

/// A frame of a simulated program. Own functions are in capitals, or in the module `Shop`.
struct SimulatedFrame {
    var name: String
    /// Which of its places it is at.
    var site = 0
    /// Its registers' values. Nil if a capture does not know them.
    var state: UInt64?

    init(_ name: String, site: Int = 0, state: UInt64? = nil) {
        (self.name, self.site, self.state) = (name, site, state)
    }

    var isOwn: Bool { name == name.uppercased() || name.hasPrefix("$s4Shop") }
    /// The same in every run: FNV-1a.
    var address: UInt {
        "\(name)#\(site)".utf8.reduce(0xcbf2_9ce4_8422_2325) { ($0 ^ UInt($1)) &* 0x0000_0100_0000_01b3 }
    }
}

/// What one look at a simulated program shows.
struct SimulatedStack {
    /// Innermost first.
    var frames: [SimulatedFrame]
    /// Who awaits the frame with that index.
    var awaiting: (from: Int, names: [String])?
    var isComplete = true
    var isRunning = true
}

/// A fault, and where its program is at any moment of it.
struct SimulatedFault: Sendable {
    var name: String
    var culprit: String
    /// - Parameter part: how much of the stall is over, from 0 to 1.
    var look: @Sendable (_ part: Double, _ random: inout SplitMix64) -> SimulatedStack

    /// The stacks of a stall of this fault with this many samples.
    func book(samples count: Int, _ random: inout SplitMix64) -> SymbolicatedStacks {
        let times = Self.times(count, &random)
        let length = times[count - 1] + 30
        let looks = times.map { look(Double($0) / Double(length), &random) }
        var order = Array(looks.indices)
        // The detection's first, then those before it, then those after it.
        if count > 5 { order = [4, 0, 1, 2, 3] + order[5...] } else { order = [count - 1] + order.dropLast() }
        let names = Dictionary(
            looks.flatMap { $0.frames + ($0.awaiting?.names ?? []).map { SimulatedFrame($0) } }.map { ($0.address, $0) }
        ) { first, _ in first }
        return SymbolicatedStacks(
            order.map { Self.sample(looks[$0], at: times[$0]) },
            thread: .init(id: 1),
            clock: WallClockAnchor(),
            name: { addresses in
                let frames = addresses.map { Self.frame($0.address, names[$0.address]?.name) }
                return Resolution(frames: frames, modules: [LoadedModule(path: "/srv/shop", buildID: nil, loadBase: 0)])
            },
            isOwn: { frame, _ in frame.symbol.map { SimulatedFrame($0).isOwn } ?? false }
        )
    }

    /// A look each tick at first, then at growing intervals, as the watchdog takes them; some are late.
    private static func times(_ count: Int, _ random: inout SplitMix64) -> [Int] {
        var (times, time) = ([Int](), Int.random(in: 1...50, using: &random))
        while times.count < count {
            times.append(time)
            time += max(50, time / 4) + (Int.random(in: 0..<4, using: &random) == 0 ? 20 : 0)
        }
        return times
    }

    private static func frame(_ address: UInt, _ name: String?) -> SymbolicatedFrame {
        SymbolicatedFrame(
            address: address,
            moduleIndex: 0,
            moduleOffset: address,
            symbol: name,
            function: name.map(Demangler.shortName)
        )
    }

    private static func sample(_ look: SimulatedStack, at time: Int) -> StackSample {
        StackSample(
            time: MonotonicInstant(nanoseconds: UInt64(1_000 + time) * 1_000_000),
            stack: CapturedStack(
                frames: look.frames.enumerated().map {
                    .init(address: $1.address, found: $0 == 0 ? .register : .unwindTable, state: $1.state)
                },
                method: look.isRunning ? .signal : .quiet,
                truncation: look.isComplete ? nil : .badFrame,
                asyncCallers: look.awaiting.map { from, names in
                    AsyncCallers(
                        addresses: names.map { SimulatedFrame($0).address },
                        frame: from,
                        end: .task,
                        taskNumber: nil
                    )
                },
                cost: .init(heldNanoseconds: 0, unwindNanoseconds: 0, bytesCopied: 0)
            )
        )
    }
}
