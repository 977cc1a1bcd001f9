import ArgumentParser
import Foundation
import StallReading
import StallReports
import StallShipping

struct ShipCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "ship",
        abstract: "Sends reports to a collector or an OpenTelemetry receiver, as they are written.",
        discussion: """
            EXAMPLES
              stall-monitor ship /var/lib/stalls --collector http://stalls.example.com:4319
              stall-monitor ship /var/lib/stalls --to https://otlp.example.com:4318
              stall-monitor ship --to http://localhost:4318 --token-file /run/secrets/otlp
              stall-monitor ship --once --format json    # what is there, for a timer

            A stall is sent when it ends, and also while it is ongoing if it lasts longer than 10 s. A collector \
            ('stall-collector serve') gets whole reports. An OpenTelemetry receiver gets a log record of each (/v1/logs; \
            'stall.state' says whether it has ended), and the counts of runs as metrics (/v1/metrics): OTLP over HTTP, in JSON. \
            Everything is compressed with gzip.

            Each report is sent at least once: a file, the checkpoint, records what the receiver has acknowledged, and after a \
            kill 'ship' continues from there. While the receiver is unreachable, reports wait in their directory for as long as \
            it keeps them; losses are reported. Two records with the same 'stall.id' are the same stall.

            A receiver's address and headers can also be given in $OTEL_EXPORTER_OTLP_ENDPOINT and $OTEL_EXPORTER_OTLP_HEADERS, \
            a bearer token in $STALL_MONITOR_TOKEN. $http_proxy, $https_proxy and $no_proxy are respected.

            At SIGTERM and Ctrl-C it makes a last try, without waiting for the time of the next one. With a request that is under \
            way, this takes five seconds at most. What is not sent waits in its directory for the next run. A second signal ends it \
            at once.

            Exit code 0: done, or ended by SIGTERM. 1: it could not start; with --once: not everything could be sent. 64: wrong \
            usage. 130: ended by Ctrl-C.
            """
    )

    // This is not `ReportsArgument`, which has options for the index: this command keeps none.
    @Argument(
        help: ArgumentHelp(
            "Report directories, or directories that contain some at any depth.",
            valueName: "dir"
        ),
        completion: .directory
    )
    var directories: [String] = []

    @Option(help: ArgumentHelp("A collector's address.", valueName: "url"))
    var collector: String?

    @Option(help: ArgumentHelp("An OpenTelemetry receiver's address, without /v1/logs.", valueName: "url"))
    var to: String?

    @Option(
        help: ArgumentHelp("A file with a bearer token. It can be replaced at any time.", valueName: "file"),
        completion: .file()
    )
    var tokenFile: String?

    @Option(
        help: ArgumentHelp(
            "Record here what was sent, one file per receiver. (default: a file in $STATE_DIRECTORY, else in the first directory)",
            valueName: "file"
        ),
        completion: .file()
    )
    var checkpoint: String?

    @Flag(help: "Send existing reports, in at most three tries, and exit.")
    var once = false

    @Option(help: "The format of the summary line.")
    var format: OutputFormat = .text

    func validate() throws {
        try directories.forEach(ReportsArgument.check)
        try ReportsArgument.refuseAddresses(directories)
        guard let address else {
            throw ValidationError(
                "give an address: --collector http://stalls.example.com:4319, or --to https://otlp.example.com:4318"
            )
        }
        if collector != nil, to != nil { throw ValidationError("give either '--collector' or '--to'") }
        if address.isEmpty { throw ValidationError("the receiver's address is empty") }
        do throws(ShippingError) {
            try HTTPAddress.check(address, of: collector == nil ? .receiver : .collector)
        } catch {
            let variable = collector ?? to == nil ? "$\(Self.endpointVariable): " : ""
            throw ValidationError("\(variable)\(CommandFailure(error.description))")
        }
        if checkpoint?.isEmpty == true { throw ValidationError("the checkpoint's name is empty") }
        if tokenFile?.isEmpty == true { throw ValidationError("the token file's name is empty") }
        // A collector gets none of them.
        if collector == nil { _ = try headers() }
    }

    func run() throws {
        let cancellation = try Cancellation()
        let signals = StopSignals(cancellation)
        let shipper: Shipper
        do {
            try awaitPlaceOfCheckpoint(cancellation)
            shipper = try Shipper(options(), cancellation: cancellation) { Output.note("\($0)") }
        } catch let error as ReportError where error.code == .cancelled {
            throw ExitCode(signals.wasInterrupted ? 130 : 0)
        } catch let error as ReportError {
            throw CommandFailure(error)
        } catch {
            throw CommandFailure("\(error)")
        }
        let totals = try shipper.run()
        switch format {
        case .json: try Output.writeJSON(totals)
        case .text: try Output.writeLine("\(totals)")
        }
        if signals.wasInterrupted { throw ExitCode(130) }
        if once, !totals.isWhole { throw ExitCode.failure }
    }

    /// Waits until the first report directory appears, if the checkpoint will be in it.
    private func awaitPlaceOfCheckpoint(_ cancellation: Cancellation) throws(ReportError) {
        let directory = paths[0]
        guard checkpoint == nil, Self.stateDirectory == nil, !once, !OutputFile.exists(directory) else { return }
        Output.note("\(ShippingNote.waiting(directory: directory))")
        var follower = try TreeFollower([directory], cancellation: cancellation)
        while !OutputFile.exists(directory) { _ = try follower.next(timeout: .seconds(60)) }
    }

    private static let endpointVariable = "OTEL_EXPORTER_OTLP_ENDPOINT"
    private var address: String? { collector ?? to ?? EnvironmentVariable.value(Self.endpointVariable) }

    private var paths: [String] { directories.isEmpty ? [ReportDirectory.defaultPath] : directories }

    private func options() throws -> ShippingOptions {
        let address = address ?? ""
        var options = ShippingOptions(
            directories: paths,
            endpoint: address,
            checkpoint: checkpoint ?? "\(Self.stateDirectory ?? paths[0])/\(Self.checkpointName(for: address))"
        )
        options.isCollector = collector != nil
        options.headers = options.isCollector ? [] : try headers()
        options.tokenFile = tokenFile
        options.token = EnvironmentVariable.value("STALL_MONITOR_TOKEN")
        options.endsWhenSent = once
        return options
    }

    /// `name=value,name=value`, the values percent-encoded (opentelemetry.io, "Protocol Exporter").
    private func headers() throws -> [(name: String, value: String)] {
        guard let text = EnvironmentVariable.value("OTEL_EXPORTER_OTLP_HEADERS") else { return [] }
        return try text.split(separator: ",").map { pair in
            let parts = pair.split(separator: "=", maxSplits: 1)
            guard parts.count == 2, let value = parts[1].trimmed.removingPercentEncoding else {
                throw ValidationError("$OTEL_EXPORTER_OTLP_HEADERS is a list of name=value, with commas between them")
            }
            return (parts[0].trimmed, value)
        }
    }

    /// One checkpoint per receiver: each acknowledges reports of its own.
    private static func checkpointName(for address: String) -> String {
        let name = address.split(separator: "://", maxSplits: 1).last ?? ""
        return ".shipped-to-"
            + name.prefix(100).map { $0.isASCII && ($0.isLetter || $0.isNumber || ".-".contains($0)) ? $0 : "_" }
    }

    /// The directory that systemd provides for a service's state (`StateDirectory=`).
    private static var stateDirectory: String? {
        EnvironmentVariable.value("STATE_DIRECTORY")?.split(separator: ":").first.map(String.init)
    }
}
