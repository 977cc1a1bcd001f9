#if Command
    import StackCapture
    import StallReports
    import Symbolication

    /// Names for the frames of one process, asked for once per address: of a process that ends, nothing can be named any more.
    struct SampleNames {
        private let processID: Int32
        private var symbolicator: Symbolicator
        private var known: [CapturedStack.Frame: [StallReport.Frame]] = [:]
        private(set) var modules: [StallReport.Module] = []

        init(processID: Int32) {
            self.processID = processID
            symbolicator = Symbolicator(processID: processID)
        }

        /// The process runs another program: the same address is something else now.
        mutating func forgetAddresses() {
            symbolicator = Symbolicator(processID: processID)
            known = [:]
        }

        mutating func frames(of stack: CapturedStack) -> [StallReport.Frame] {
            resolve(stack.frames.filter { known[$0] == nil })
            return stack.frames.flatMap { known[$0] ?? [] }
        }

        private mutating func resolve(_ frames: [CapturedStack.Frame]) {
            guard !frames.isEmpty else { return }
            let resolved = symbolicator.resolve(
                frames.map { ResolvableAddress(address: $0.address, isReturnAddress: $0.found != .register) },
                budget: .tool
            )
            let places = resolved.modules.map { place(of: StallReport.Module($0)) }
            for (frame, named) in zip(frames, resolved.frames) {
                let module = named.moduleIndex.map { places[$0] }
                known[frame] = StallReport.Frame.calls(named, module: module, found: frame.found)
            }
        }

        private mutating func place(of module: StallReport.Module) -> Int {
            if let index = modules.firstIndex(of: module) { return index }
            modules.append(module)
            return modules.count - 1
        }
    }
#endif
