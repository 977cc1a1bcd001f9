import StallReading
import StallReports
import StallStore
import Testing

@testable import StallCollector

/// The sizes of the batches that a store was given, in order.
private actor Batches {
    private(set) var sizes: [Int] = []

    func append(_ size: Int) { sizes.append(size) }
}

extension Arrival {
    fileprivate var id: ULID {
        switch self {
        case .stall(let stall): stall.id
        case .run(let run): run.id
        }
    }
}

@Suite("The queue before the store")
struct IngestQueueTests {
    private static func arrival() throws -> Arrival {
        let now = Timestamp.now()
        let run = RunRecord(
            startedAt: now,
            updatedAt: now,
            host: .init(name: "web1"),
            process: .init(pid: 7),
            monitorVersion: "1"
        )
        return try Arrival(json: run.json(), team: "a")
    }

    @Test("Requests that arrive while the disk is busy are written together, then answered", arguments: [false, true])
    func together(fails: Bool) async throws {
        let (barrier, batches) = (Barrier(), Batches())
        let store = StubStore(inserting: { arrivals in
            await barrier.pass()
            await batches.append(arrivals.count)
            if fails { throw RefusedArrival("full") }
            return arrivals.count
        })
        let queue = IngestQueue(store, maximumBytes: 1000)
        let arrival = try Self.arrival()
        let requests = 20
        let answers = await withTaskGroup(of: Bool.self) { group in
            for _ in 0..<requests {
                group.addTask { (try? await queue.insert([arrival], size: 1)) != nil }
            }
            // The store has the first; the others wait behind it.
            while await queue.waitingBytes < requests { await Task.yield() }
            await barrier.open()
            return await group.reduce(into: []) { $0.append($1) }
        }
        #expect(answers == Array(repeating: !fails, count: requests))
        // If those that were written together fail, each may be the reason. After two of them the store is.
        #expect(await batches.sizes == [1, requests - 1] + (fails ? [1, 1] : []))
    }

    @Test("A request that the store refuses does not fail those that are written with it")
    func alone() async throws {
        let (barrier, wrong) = (Barrier(), try Self.arrival())
        let store = StubStore(inserting: { arrivals in
            await barrier.pass()
            if arrivals.contains(where: { $0.id == wrong.id }) { throw RefusedArrival("wrong") }
            return arrivals.count
        })
        let queue = IngestQueue(store, maximumBytes: 1000)
        let requests = try (0..<6).map { $0 == 3 ? wrong : try Self.arrival() }
        let failed = await withTaskGroup(of: Int?.self) { group in
            for (number, arrival) in requests.enumerated() {
                group.addTask { (try? await queue.insert([arrival], size: 1)) == nil ? number : nil }
            }
            while await queue.waitingBytes < requests.count { await Task.yield() }
            await barrier.open()
            return await group.reduce(into: [Int]()) { if let number = $1 { $0.append(number) } }
        }
        #expect(failed == [3])
    }

    @Test("A request that would be too much is refused at once")
    func overload() async throws {
        let barrier = Barrier()
        let store = StubStore(inserting: { arrivals in
            await barrier.pass()
            return arrivals.count
        })
        let queue = IngestQueue(store, maximumBytes: 100)
        let arrival = try Self.arrival()
        async let first = queue.insert([arrival], size: 90)
        // The first has its place before the store gets it.
        while await queue.waitingBytes < 90 { await Task.yield() }
        await #expect(throws: IngestQueue.Overloaded.self) { try await queue.insert([arrival], size: 20) }
        await barrier.open()
        #expect(try await first == 1)
    }
}
