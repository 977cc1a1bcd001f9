#if Command

    import AsyncHTTPClient
    import FoundationEssentials
    import NIOCore
    import NIOFoundationCompat
    import NIOHTTP1

    /// Sends the demo's requests.
    struct DemoDriver {
        let client: HTTPClient
        /// `http://host:port`
        let address: String

        /// Two clients ask for ordinary work, one request after the other. Returns how many were answered.
        func load(for time: Duration) async throws -> Int {
            let end = ContinuousClock.now + time
            return try await withThrowingTaskGroup { group in
                for path in ["health", "work"] {
                    group.addTask {
                        var answered = 0
                        while ContinuousClock.now < end {
                            _ = try await get(path)
                            answered += 1
                        }
                        return answered
                    }
                }
                return try await group.reduce(0, +)
            }
        }

        /// Has the server stall itself.
        func inject(_ stall: DemoStall, milliseconds: Int) async throws -> StallReceipt {
            try JSONDecoder().decode(
                StallReceipt.self,
                from: try await get("stall/\(stall.rawValue)?ms=\(milliseconds)")
            )
        }

        private func get(_ path: String) async throws -> Data {
            let response = try await client.execute(.init(url: "\(address)/\(path)"), timeout: .seconds(30))
            let body = try await response.body.collect(upTo: 1 << 20)
            guard response.status.code == 200 else {
                throw CommandFailure("GET /\(path) was answered with \(response.status)")
            }
            return Data(buffer: body)
        }
    }

#endif
