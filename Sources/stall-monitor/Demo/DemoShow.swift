#if Command

    import AsyncHTTPClient
    import FoundationEssentials
    import NIOCore
    import StallReports
    import Subprocess
    import SystemPackage

    /// The demo's plot: a server in a process of its own, a time without a stall, then one stall after the other.
    struct DemoShow {
        let directory: String
        /// Whether reports go to standard output as they appear.
        let showsReports: Bool

        private static let controlTime = Duration.seconds(6)
        private static let stallMilliseconds = 600

        func run() async throws -> DemoResult {
            let client = HTTPClient()
            do {
                let result = try await runServer { server in
                    try await play(DemoDriver(client: client, address: server))
                }
                try await client.shutdown()
                return result
            } catch {
                try? await client.shutdown()
                throw error
            }
        }

        private func play(_ driver: DemoDriver) async throws -> DemoResult {
            let feed = try ReportFeed(directory: directory) { [showsReports] report, isFirst in
                guard showsReports else { return }
                try? Output.write(StallLine.lines(report, isFirst: isFirst), on: .current())
            }
            defer { feed.stop() }
            note("Control: \(Self.controlTime) of requests, and no stall")
            let requests = try await driver.load(for: Self.controlTime)
            let control = DemoResult.Control(
                durationNs: Int64(Self.controlTime / .nanoseconds(1)),
                requests: requests,
                reports: try feed.reports().count
            )
            var receipts: [StallReceipt] = []
            for (index, stall) in DemoStall.allCases.enumerated() {
                note("Stall \(index + 1) of \(DemoStall.allCases.count): \(stall.title)")
                receipts.append(try await driver.inject(stall, milliseconds: Self.stallMilliseconds))
                await feed.settle(count: control.reports + receipts.count)
            }
            return DemoResult(receipts, control: control, reports: try feed.reports(), directory: directory)
        }

        /// Starts the server, waits for its address, and ends it in order when `body` is done.
        private func runServer<Result: Sendable>(
            _ body: @escaping @Sendable (String) async throws -> Result
        ) async throws -> Result {
            guard let executable = ProcessIdentity.current().executable else {
                throw CommandFailure("/proc is not mounted")
            }
            let arguments = ["demo", "--keep", "--until-input-ends", "--port", "0", "--reports", directory]
            let outcome = try await Subprocess.run(
                .path(FilePath(executable)),
                arguments: Arguments(arguments),
                input: .inputWriter,
                output: .sequence,
                error: .currentStandardError
            ) { execution in
                var lines = execution.standardOutput.strings().makeAsyncIterator()
                while let line = try await lines.next() {
                    guard let port = DemoAnnouncement.port(in: line) else { continue }
                    let result = try await body("http://127.0.0.1:\(port)")
                    try execution.send(signal: .terminate)
                    return Optional(result)
                }
                return nil
            }
            guard let result = outcome.closureResult else {
                throw CommandFailure(
                    "the server ended before it listened (\(outcome.terminationStatus)); its errors stand above"
                )
            }
            return result
        }

        private func note(_ text: String) {
            Output.note("demo: \(text)")
        }
    }

#endif
