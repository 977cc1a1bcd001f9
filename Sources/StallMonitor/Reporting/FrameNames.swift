package import StackCapture
package import StallReports
package import Symbolication

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

extension StallReport.Frame {
    /// An address's calls as a report tells them: the inlined ones, the innermost first, then the one whose address it is.
    ///
    /// - Parameter isOwn: asked for each call, as if it were a frame.
    package static func calls(
        _ name: SymbolicatedFrame,
        found: CapturedStack.Frame.Found,
        isOwn: (SymbolicatedFrame) -> Bool
    ) -> [Self] {
        var call = Self(name, own: isOwn(name))
        call.foundBy = found.origin
        return call.inlinedCalls(name, isOwn: isOwn) + [call]
    }

    /// An awaiting function as a report tells it: the inlined calls around the `await`, the innermost first, then the function itself.
    ///
    /// - Parameter isOwn: asked for each call, as if it were a frame.
    package static func awaits(_ name: SymbolicatedFrame, isOwn: (SymbolicatedFrame) -> Bool) -> [Self] {
        var call = Self(name, own: isOwn(name))
        (call.kind, call.foundBy) = (.awaiting, .asyncContext)
        return call.inlinedCalls(name, isOwn: isOwn) + [call]
    }

    /// The calls that were inlined into this one.
    func inlinedCalls(_ name: SymbolicatedFrame, isOwn: (SymbolicatedFrame) -> Bool) -> [Self] {
        name.inlined.map { inlined in
            var asFrame = name
            (asFrame.symbol, asFrame.function) = (inlined.symbol, inlined.function)
            (asFrame.swiftModule, asFrame.location) = (inlined.swiftModule, inlined.location)
            asFrame.functionOffset = nil
            var frame = Self(asFrame, own: isOwn(asFrame))
            (frame.kind, frame.foundBy) = (.inlined, foundBy)
            (frame.address, frame.module, frame.offset) = (address, module, offset)
            return frame
        }
    }

    init(_ frame: SymbolicatedFrame, own: Bool) {
        self.init(
            address: Address(UInt64(frame.address)),
            module: frame.moduleIndex,
            offset: frame.moduleIndex.map { _ in Address(UInt64(frame.moduleOffset)) },
            function: frame.symbol.map(Demangler.shortName),
            symbol: frame.symbol,
            functionOffset: frame.functionOffset.map { Address(UInt64($0)) },
            file: frame.location?.file,
            line: frame.location?.line,
            column: frame.location?.column,
            own: own
        )
    }
}
