import StallExport

/// The page of `export --format html` as the collector sends it. It is isolated from the collector's other pages, and runs only
/// its own script.
enum ExportedPage {
    /// Permits scripts and styles by their hashes (CSP level 3, 6.7.3.3), so that markup in a report's names would have no
    /// effect.
    static let policy = """
        sandbox allow-scripts; default-src 'none'; style-src \(source(of: FlameGraphView.style)); \
        script-src \(source(of: FlameGraphView.script)); base-uri 'none'; form-action 'none'; frame-ancestors 'none'
        """

    /// In the page, each of these texts follows a newline.
    private static func source(of text: String) -> String {
        "'sha256-\(SHA256.base64(of: "\n\(text)"))'"
    }
}
