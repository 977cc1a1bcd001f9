#if Command
    import StackCapture
    import StallReports
    import Symbolication

    // Captures in the terms of reports.

    extension StallReport.Thread {
        init(_ thread: ProcessThread) {
            self.init(id: thread.threadID, name: thread.name, state: thread.state.map(String.init))
        }
    }

    extension StallReport.SystemCall {
        init(_ call: SystemCall) {
            self.init(number: call.number, name: call.name, arguments: call.arguments.map { Address(UInt64($0)) })
        }
    }

    extension StallReport.Module {
        init(_ module: LoadedModule) {
            self.init(path: module.path, buildID: module.buildID, loadBase: Address(UInt64(module.loadBase)))
        }
    }

    extension StallReport.Frame {
        /// An address's calls: the inlined ones, the innermost first, then the one whose address it is.
        ///
        /// - Parameters:
        ///   - module: its place in the document.
        ///   - kind: of the last one.
        static func calls(
            _ frame: SymbolicatedFrame,
            module: Int?,
            kind: FrameKind? = nil,
            found: FrameOrigin
        ) -> [Self] {
            var call = Self(frame, module: module, found: found)
            call.kind = kind
            let inlined = frame.inlined.map { inlined in
                var copy = call
                (copy.kind, copy.functionOffset, copy.symbol) = (.inlined, nil, inlined.symbol)
                copy.function = inlined.symbol.map(Demangler.shortName) ?? inlined.function
                (copy.file, copy.line, copy.column) = (
                    inlined.location?.file, inlined.location?.line, inlined.location?.column
                )
                return copy
            }
            return inlined + [call]
        }

        private init(_ frame: SymbolicatedFrame, module: Int?, found: FrameOrigin) {
            self.init(
                address: Address(UInt64(frame.address)),
                module: module,
                offset: module.map { _ in Address(UInt64(frame.moduleOffset)) },
                function: frame.symbol.map(Demangler.shortName),
                symbol: frame.symbol,
                functionOffset: frame.functionOffset.map { Address(UInt64($0)) },
                file: frame.location?.file,
                line: frame.location?.line,
                column: frame.location?.column,
                foundBy: found
            )
        }
    }

    extension AsyncEnd {
        init(_ end: AsyncCallers.End) {
            switch end {
            case .task: self = .task
            case .asyncLet: self = .asyncLet
            case .taskGroup: self = .taskGroup
            case .limit: self = .limit
            case .unknown: self = .unknown
            }
        }
    }

    extension FrameOrigin {
        init(_ found: CapturedStack.Frame.Found) {
            switch found {
            case .register: self = .programCounter
            case .unwindTable: self = .unwindTable
            case .framePointer: self = .framePointer
            case .scan: self = .stackScan
            }
        }
    }

    extension CapturedStack.Method {
        var name: String {
            switch self {
            case .quiet: "quiet"
            case .signal: "signal"
            case .stopped: "stopped"
            }
        }
    }

    extension CapturedStack.Truncation {
        /// Why the outer frames are missing.
        var reason: String {
            switch self {
            case .timeLimit: "there are too many frames to follow them all"
            case .copyLimit: "the stack is larger than what is copied, and changed meanwhile"
            case .noUnwindTable: "code without an unwind table is in the way"
            case .badFrame: "the next frame makes no sense"
            }
        }
    }

    extension SampleDocument.Cost {
        init(_ cost: SamplingCost) {
            self.init(
                stops: Int64(clamping: cost.stops),
                heldNs: Int64(clamping: cost.heldNanoseconds),
                longestHeldNs: Int64(clamping: cost.longestHeldNanoseconds),
                callsRestarted: Int64(clamping: cost.callsRestarted),
                stopsGivenUp: Int64(clamping: cost.stopsGivenUp)
            )
        }
    }
#endif
