package import StackCapture
package import StallReports
package import Symbolication

// What a report's fingerprint is computed from.

extension StallReport.Frame {
    /// Own code without a name.
    var isNamelessOwn: Bool { own && symbol == nil && function == nil }
}

extension Fingerprint {
    /// The fingerprint of a stall, from the culprit and its callers.
    ///
    /// - Parameter executable: the path of the process's executable.
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
    /// The calls of an address: the inlined ones, innermost first, then the function itself.
    ///
    /// - Parameter isOwn: Called for each call as if it were a frame.
    package static func calls(
        _ name: SymbolicatedFrame,
        found: CapturedStack.Frame.Found,
        isOwn: (SymbolicatedFrame) -> Bool
    ) -> [Self] {
        var call = Self(name, own: isOwn(name))
        call.foundBy = found.origin
        return call.inlinedCalls(name, isOwn: isOwn) + [call]
    }

    /// The calls of an awaiting function: those inlined around the `await`, innermost first, then the function itself.
    ///
    /// - Parameter isOwn: Called for each call as if it were a frame.
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
