package import StallReports
import Symbolication

// What a report's fingerprint is made of.

extension StallReport.Frame {
    /// Own code that is known by its place alone.
    var isNamelessOwn: Bool { own && symbol == nil && function == nil }
}

extension Fingerprint {
    /// The fingerprint of a stall whose culprit and its callers are known.
    ///
    /// - Parameter executable: the path of the process's.
    package static func make(
        kind: StallKind,
        fault frames: [StallReport.Frame],
        modules: [StallReport.Module],
        executable: String?
    ) -> Fingerprint {
        make(kind: kind, frames: frames, modules: modules, executable: executable) { SourceName(symbol: $0) }
    }
}

extension Fingerprint.SourceName {
    package init(symbol: String) {
        let function = SourceFunction(symbol: symbol)
        let isSwift = function.swiftModule != nil
        self.init(
            function.name,
            enclosing: function.enclosing,
            isQualified: isSwift,
            isTransparent: function.isMadeUp || function.swiftModule == "Swift"
        )
    }
}
