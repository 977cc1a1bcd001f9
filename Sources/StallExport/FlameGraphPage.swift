internal import StallReports

/// One self-contained page for a browser: a flame graph that can be zoomed and searched, and a table of the stalls.
struct FlameGraphPage: ReportExporter {
    private var view = FlameGraphView()

    mutating func add(_ report: StallReport) throws(ReportError) -> [UInt8] { try view.add(report) }

    func end() throws(ReportError) -> [UInt8] {
        Array(Self.head.utf8) + (try view.end()) + Array(Self.tail.utf8)
    }

    private static let head = """
        <!doctype html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
        <title>Stalls</title>
        <style>
        \(FlameGraphView.style)</style>
        </head>
        <body>
        \(FlameGraphView.markup)<script type="application/json" id="data">
        """

    private static let tail = """
        </script>
        <script>
        \(FlameGraphView.script)</script>
        </body>
        </html>

        """
}
