/// What is sent, where to, and how.
package struct ShippingOptions: Sendable {
    /// Report directories, or directories that hold some.
    package var directories: [String]
    /// Where an OTLP receiver listens, `https://otlp.example.com:4318`: `/v1/logs` and `/v1/metrics` are put behind it. Or a collector:
    /// `/v1/reports`.
    package var endpoint: String
    /// Whether that is a collector, which takes whole reports.
    package var isCollector = false
    /// With each request.
    package var headers: [(name: String, value: String)] = []
    /// A file with a bearer token. It is read again for each request.
    package var tokenFile: String?
    /// The token itself, where there is no file.
    package var token: String?
    /// The file that remembers what was acknowledged.
    package var checkpoint: String
    /// Ends when everything that is there was sent.
    package var endsWhenSent = false
    /// Reports in one request. Run records, too.
    package var batch = 256
    /// How long the first report of a batch waits for others.
    package var linger = Duration.milliseconds(500)
    /// A stall that lasts for so long is also sent before it has ended.
    package var ongoingAfter = Duration.seconds(10)
    /// For a request, its answer included.
    package var patience = Duration.seconds(30)

    package init(directories: [String], endpoint: String, checkpoint: String) {
        (self.directories, self.endpoint, self.checkpoint) = (directories, endpoint, checkpoint)
    }

    var wire: Wire { isCollector ? .collector : .telemetry }
}
