#if Command

    import ArgumentParser
    import Glibc
    import StallCorpus
    import StallReports

    struct DemoCommand: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "demo",
            abstract: "Stall a real server in six ways, and show that each is caught and explained.",
            discussion: """
                Starts an HTTP server under watch, drives it with requests over loopback, first without a stall, then through \
                each kind of stall, and shows every report as it appears. Ends within a minute with a table.

                Exits 0 only if each stall gave exactly one report that names the function that stalled, and the time without \
                a stall gave none.

                With --corpus it plays some 120 small scenarios instead, one after the other: stalls of every kind and cause, and \
                what only looks like one. It takes several minutes, prints what each was taken for, and exits 0 only if the goals \
                are met.

                EXAMPLES
                  stall-monitor demo
                  stall-monitor demo --format json
                  stall-monitor demo --corpus
                  stall-monitor demo --keep --port 8080 --reports /tmp/stalls
                      then: curl 'localhost:8080/stall/sleep?ms=600'   (\(DemoStall.names))
                      and:  stall-monitor tail -f /tmp/stalls

                EXIT CODES
                  0 all as expected   1 not as expected, or it could not run   64 usage
                """
        )

        @Option(help: "The table as text or json.")
        var format = OutputFormat.text

        @Flag(help: "Only serve, until ctrl-C: stalls are up to you.")
        var keep = false

        @Flag(help: "Play every scenario there is, and judge what is reported of each.")
        var corpus = false

        @Option(help: ArgumentHelp("Where to listen on 127.0.0.1. Default: a free port.", valueName: "port"))
        var port = 0

        @Option(help: ArgumentHelp("The report directory. Default: a new one under /tmp.", valueName: "dir"))
        var reports: String?

        /// How the demo itself starts its server: serving ends when standard input does, so that no server outlives its demo.
        @Flag(help: .hidden)
        var untilInputEnds = false

        func validate() throws {
            guard (0...65_535).contains(port) else { throw ValidationError("--port takes 0 to 65535.") }
            guard !(keep && corpus) else { throw ValidationError("--corpus does not go with --keep.") }
            guard keep || port == 0 else { throw ValidationError("--port goes with --keep.") }
        }

        func run() async throws {
            if corpus { return try await DemoCorpus(format: format, directory: reports ?? Self.newDirectory()).run() }
            if keep { try await serve() } else { try await show() }
        }

        private func serve() async throws {
            let directory = try preparedDirectory()
            if untilInputEnds { InputWatch.exitAtEnd() }
            try await DemoServer(port: port, directory: directory).run { port in
                try? Output.write(DemoAnnouncement(port: port, directory: directory).text(forPeople: !untilInputEnds))
            }
        }

        private func show() async throws {
            let directory = try preparedDirectory()
            let result = try await DemoShow(directory: directory, showsReports: format == .text).run()
            switch format {
            case .text: try Output.write(DemoTable(result: result).lines, on: .current())
            case .json: try Output.write(result.json() + "\n")
            }
            if !result.passed { throw ExitCode(1) }
        }

        /// The directory for the reports, which can be written to.
        private func preparedDirectory() throws -> String {
            guard let reports else { return try Self.newDirectory() }
            guard !reports.isEmpty else { throw ValidationError("--reports takes a directory.") }
            try CommandFailure.wrapping { () throws(ReportError) in try ReportDirectory(path: reports).prepare() }
            return reports
        }

        private static func newDirectory() throws -> String {
            var template = Array("/tmp/stall-monitor-demo.XXXXXX".utf8CString)
            guard let path = unsafe mkdtemp(&template) else {
                throw CommandFailure("no temporary directory in /tmp (errno \(errno)); give one with --reports")
            }
            return unsafe String(cString: path)
        }
    }

#endif
