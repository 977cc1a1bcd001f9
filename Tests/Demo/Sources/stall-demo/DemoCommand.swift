import ArgumentParser
import Glibc
import StallReports

@main
struct DemoCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "stall-demo",
        abstract: "Stall a real server in eight ways, and show that each is caught and explained.",
        discussion: """
            Starts an HTTP server under watch, drives it with requests over loopback, first without a stall, then through \
            each kind of stall, and shows every report as it appears. Ends within a minute with a table.

            Exits 0 only if each stall gave exactly one report that names the function that stalled, and the time without \
            a stall gave none.

            EXAMPLES
              scripts/run
              scripts/run --format json
              scripts/run --keep --port 8080 --reports /tmp/stalls
                  then: curl 'localhost:8080/stall/sleep?ms=600'   (\(DemoStall.names))
                  and:  stall-monitor tail -f /tmp/stalls

            EXIT CODES
              0 all as expected   1 not as expected, or it could not run   64 usage
            """
    )

    enum Format: String, ExpressibleByArgument, CaseIterable {
        case text, json
    }

    @Option(help: "The table as text or json.")
    var format = Format.text

    @Flag(help: "Only serve, until ctrl-C: stalls are up to you.")
    var keep = false

    @Option(help: ArgumentHelp("Where to listen on 127.0.0.1. Default: a free port.", valueName: "port"))
    var port = 0

    @Option(help: ArgumentHelp("The report directory. Default: a new one under /tmp.", valueName: "dir"))
    var reports: String?

    /// Set by the demo when it starts its server: the server ends at
    /// the end of standard input, so that it does not outlive the demo.
    @Flag(help: .hidden)
    var untilInputEnds = false

    func validate() throws {
        guard (0...65_535).contains(port) else { throw ValidationError("--port takes 0 to 65535.") }
        guard keep || port == 0 else { throw ValidationError("--port goes with --keep.") }
        guard reports?.isEmpty != true else { throw ValidationError("--reports takes a directory.") }
    }

    func run() async throws {
        if keep { try await serve() } else { try await show() }
    }

    private func serve() async throws {
        let directory = try preparedDirectory()
        if untilInputEnds { InputWatch.exitAtEnd() }
        try await DemoServer(port: port, directory: directory).run { port in
            print(DemoAnnouncement(port: port, directory: directory).text(forPeople: !untilInputEnds), terminator: "")
            fflush(nil)
        }
    }

    private func show() async throws {
        let directory = try preparedDirectory()
        let result = try await DemoShow(directory: directory, showsReports: format == .text).run()
        switch format {
        case .text: print(DemoTable(result: result).text)
        case .json: print(try result.json())
        }
        if !result.passed { throw ExitCode(1) }
    }

    /// The directory for the reports, checked to be writable.
    private func preparedDirectory() throws -> String {
        let directory = try reports ?? Self.newDirectory()
        do throws(ReportError) {
            try ReportDirectory(path: directory).prepare()
        } catch {
            throw DemoFailure("\(directory): \(error)")
        }
        return directory
    }

    private static func newDirectory() throws -> String {
        var template = Array("/tmp/stall-monitor-demo.XXXXXX".utf8CString)
        guard let path = unsafe mkdtemp(&template) else {
            throw DemoFailure("no temporary directory in /tmp (errno \(errno)); give one with --reports")
        }
        return unsafe String(cString: path)
    }
}

/// The reason why the demo could not run: one line on standard error, and exit code 1.
struct DemoFailure: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) { self.description = description }
}
