/// What is sent, to which receiver, and how.
package struct ShippingOptions: Sendable {
    /// Report directories, or directories that contain some.
    package var directories: [String]
    /// The address of an OTLP receiver, `https://otlp.example.com:4318`, to which `/v1/logs` and `/v1/metrics` are appended. Or
    /// of a collector: `/v1/reports`.
    package var endpoint: String
    /// Whether it is a collector, which accepts full reports.
    package var isCollector = false
    /// Sent with each request.
    package var headers: [(name: String, value: String)] = []
    /// A file with a bearer token. It is read again for each request.
    package var tokenFile: String?
    /// The token itself, if there is no file.
    package var token: String?
    /// The file that stores what was acknowledged.
    package var checkpoint: String
    /// Ends when everything that exists was sent.
    package var endsWhenSent = false
    /// The number of reports, or run records, in one request.
    package var batch = 256
    /// How long the first report of a batch waits for others.
    package var linger = Duration.milliseconds(500)
    /// A stall that lasts this long is also sent before it has ended.
    package var ongoingAfter = Duration.seconds(10)
    /// The timeout of a request, including its answer.
    package var patience = Duration.seconds(30)

    package init(directories: [String], endpoint: String, checkpoint: String) {
        (self.directories, self.endpoint, self.checkpoint) = (directories, endpoint, checkpoint)
    }

    var wire: Wire { isCollector ? .collector : .telemetry }
}
